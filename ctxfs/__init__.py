"""What people and agents see: the mounted tree, its daemon, and the agent socket (spec 1, 3)."""
