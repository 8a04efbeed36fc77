"""The sockets on a mount, asked by real clients."""
