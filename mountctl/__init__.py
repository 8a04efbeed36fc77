"""The commands: ``ctx`` for people and agents, ``mountctl`` for admins (spec 4). One module per command."""
