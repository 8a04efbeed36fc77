"""An agent's ``data/blob/``: what is too big for a line, under its digest, by ordinary file operations (spec 4.2)."""

import hashlib
import os

from backend.transcripts.blobs import Blob
from mountctl import places
from mountctl.cli import Failure
from mountctl.private_files import private_file


def directory(agent: str, space: str | None) -> str:
    """Where an agent's blobs are: one place for all agents of a shared space, none for a model (``Failure``)."""
    if agent.startswith(places.MODEL_PREFIX):
        raise Failure("a part has more than 1 MiB, and a model's sessions have no data directory for it")
    base = places.owner(agent, None) if space is None else places.space(space)
    return f"{base}/data/blob"


def store(where: str, blob: Blob) -> None:
    """Stores a blob, durably and whole; there already: nothing to do."""
    if os.path.exists(f"{where}/{blob.sha256}"):
        return
    os.makedirs(where, exist_ok=True)
    with private_file(where, blob.sha256) as file:
        file.write(blob.content)


def load(where: str, sha256: str) -> bytes:
    """The content of a blob (``Failure``: it is missing, or not what its name says)."""
    path = f"{where}/{sha256}"
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise Failure(f"blob {path} is missing, so its part of the session cannot be exported") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise Failure(f"blob {path} does not have the digest that its name says: it was changed")
    return content
