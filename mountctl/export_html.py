"""``--to html``: the page of ``ctx agent history --html``, with blobs put back (spec 4.2)."""

from mountctl.exporting import Session
from mountctl.private_files import private_file
from mountctl.session_page import write_page


def export(session: Session, directory: str) -> str:
    """Writes ``<directory>/<session>.html``; that path."""
    name = f"{session.name}.html"
    with private_file(directory, name) as file:
        write_page(file, session.directory, session.agent, session.blob)
    return f"{directory}/{name}"
