"""Field report 6: writers by file and by socket in one session interleave, and nothing is lost, torn or doubled."""

import json
import threading
from pathlib import Path

from tests.people import ALICE
from tests.socket.workshop import Workshop, lines, to_the_end

WRITERS, APPENDS = 4, 50


def write(path: Path, writer: int, barrier: threading.Barrier) -> None:
    barrier.wait()
    for n in range(APPENDS):
        with path.open("a") as file:
            file.write(json.dumps({"role": "user", "content": f"{writer} {n} " + "x" * (n * 37 % 3000)}) + "\n")


def test_writers_by_file_and_by_socket_share_a_session(workshop: Workshop) -> None:
    bot = workshop.bot()
    bot.send("first", id="first")
    barrier = threading.Barrier(2 * WRITERS)
    clients = [bot.talk() for _ in range(WRITERS)]
    connections = [client.__enter__() for client in clients]
    path = bot.session() / "messages.jsonl"

    def send(writer: int) -> None:
        barrier.wait()
        for n in range(APPENDS // 5):
            connections[writer].send(bot.sending(f"s{writer} {n}", id=f"s{writer}-{n}", queue=True))
            assert to_the_end(connections[writer])[-1]["status"] == "ok"

    threads = [threading.Thread(target=write, args=(path, writer, barrier)) for writer in range(WRITERS)]
    threads += [threading.Thread(target=send, args=[writer]) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.__exit__(None, None, None)

    users = [message["content"].split(" x")[0].strip() for message in lines(path) if message["role"] == "user"]
    by_file = [f"{writer} {n}" for writer in range(WRITERS) for n in range(APPENDS)]
    by_socket = [f"s{writer} {n}" for writer in range(WRITERS) for n in range(APPENDS // 5)]
    assert sorted(users) == sorted(["first", *by_file, *by_socket])
    for writer in range(WRITERS):
        own = [user for user in users if user.startswith(f"{writer} ")]
        assert own == [f"{writer} {n}" for n in range(APPENDS)]
    log = [json.loads(line) for line in (bot.session() / "context/log.jsonl").read_text().splitlines()]
    assert [entry["n"] for entry in log] == list(range(len(log)))
    _, events = bot.log()
    assert [event["type"] for event in events].count("done") == len(by_socket) + 1
    assert ALICE.does(path.read_bytes) == path.read_bytes()
