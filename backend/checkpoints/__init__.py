"""Workspace checkpoints (spec 6): the ws-ckpt protocol, its client, and what its daemon does. No argv.

``bincode`` and ``wire`` are the protocol, ``client`` speaks it; ``daemon`` answers it from ``service``, which works on
``workspaces`` through one of ``snapshots``.
"""
