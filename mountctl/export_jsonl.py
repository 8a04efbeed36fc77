"""``--to jsonl``: the lines of messages.jsonl, with their blobs put back (spec 4.2).

``ctx agent session import --from jsonl`` of such a file finds every line in the session it came from.
"""

from backend.transcripts.blobs import restored
from mountctl import places
from mountctl.cli import Failure
from mountctl.exporting import Session
from mountctl.private_files import private_file


def export(session: Session, directory: str) -> str:
    """Writes ``<directory>/<session>.jsonl``; that path."""
    try:
        messages = open(f"{session.directory}/messages.jsonl", "rb")  # noqa: SIM115  (closed by the with below)
    except FileNotFoundError:
        raise places.no_session(session.directory) from None
    name = f"{session.name}.jsonl"
    with messages, private_file(directory, name) as file:
        for number, line in enumerate(messages, 1):
            try:
                file.write(restored(line.removesuffix(b"\n"), session.blob) + b"\n")
            except ValueError:
                raise Failure(f"messages.jsonl:{number}: a blob that it names holds no part of a message") from None
    return f"{directory}/{name}"
