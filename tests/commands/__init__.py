"""The commands, run as processes against real mounts (spec 4)."""
