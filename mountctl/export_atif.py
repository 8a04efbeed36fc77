"""``--to atif``: what ``ctx agent trajectory`` prints, as a file (spec 4.2, 4.3)."""

from mountctl.ctx_agent_trajectory import trajectory_json
from mountctl.exporting import Session
from mountctl.private_files import private_file


def export(session: Session, directory: str) -> str:
    """Writes ``<directory>/<session>.trajectory.json``; that path. Nothing is written of what is refused."""
    document = trajectory_json(session)
    name = f"{session.name}.trajectory.json"
    with private_file(directory, name) as file:
        file.writelines(document)
    return f"{directory}/{name}"
