"""What ctxfs asks of cosh-core, and how one of its sessions is an agent's (spec 5.1, 5.2).

``exchange`` runs a process for one answer, ``client`` speaks session control to it, ``resume`` decides which session a
turn goes on with, and ``adapter`` makes a headless cosh-core an agent.
"""
