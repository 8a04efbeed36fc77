"""The store: no FUSE, no sockets, no argv; usable as a library (spec 2)."""
