"""What ``agent/ctx.sock`` answers: what file operations cannot do, of the peer's own homes (spec 1.9, end).

``requests`` are the operations, ``service`` sends each to the module that answers it, ``reach`` says whose sessions a
peer may name. docs/ctx-socket.md describes all of it for clients. Trio's thread, but for what goes over the bridge.
"""
