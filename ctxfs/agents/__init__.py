"""Agents and models on their sockets: frames, runs, and the processes that do the work (spec 3).

``launcher`` and ``guardian`` are processes of their own (with ``views``, ``cwd``, ``identity``, ``gathering`` and
``launch``, which says what travels between them and the daemon); nothing else here runs outside the daemon.
"""
