"""Unix sockets on the mount: binding, frames, peers, limits (spec 3.1, 3.2). What is answered is not decided here.

``binding`` binds one on the mount, ``server.Sockets`` serves those of one mount, ``connection`` is one client,
``lookout`` sees what it does while it is answered, ``frames`` is what travels. A service is a function that answers one
request:

    async def serve(connection: Connection, request: bytes) -> None:
        match frames.decode(request, Ping | Send):  # InvalidValue, answered as an error frame
            case Ping():
                await connection.send({"type": "pong"})

    await sockets.open(Address("ctx"), serve)

Requests of a connection are answered one after another. What a service raises becomes an error frame, and a bug ends
one request, not the daemon. ``connection.peer`` is who asks; ``ctxfs.bridge`` is the way to the store.
Everything here runs on trio's thread, but for ``binding``, which runs on worker threads: whatever touches the mount
waits for the FUSE thread.
"""
