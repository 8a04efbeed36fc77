"""The sockets of workspace checkpoints (spec 6.2, 6.3): a client, and the server of ``backend.checkpoints``."""
