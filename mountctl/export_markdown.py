"""``--to markdown``: what context/transcript.md says, with blobs put back (spec 4.2, 1.7)."""

from backend.transcript import entry_text, title
from mountctl.entries import LogFile
from mountctl.exporting import Session
from mountctl.private_files import private_file


def export(session: Session, directory: str) -> str:
    """Writes ``<directory>/<session>.md``; that path."""
    name = f"{session.name}.md"
    with LogFile(session.directory, session.blob) as log, private_file(directory, name) as file:
        file.write(title(session.name))
        file.writelines(map(entry_text, log))
    return f"{directory}/{name}"
