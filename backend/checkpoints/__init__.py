"""Workspace checkpoints (spec 6): the ws-ckpt protocol, and what its daemon does. No argv, no sockets.

``bincode`` and ``wire`` are the protocol; ``service`` answers it, and works on ``workspaces`` through one of
``snapshots``. The client and the server are in ``ctxfs.checkpoints``.
"""
