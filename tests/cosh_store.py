"""A cosh-core session store written byte by byte from its format, never with the project's own code (spec 5)."""

import hashlib
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

DAY_MS = 1_700_000_000_000


def session_id(number: int) -> str:
    """Ids that sort as their numbers do."""
    return str(uuid.UUID(int=number))


def message(text: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


class CoshStore:
    """A home, a workspace and the default root."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.workspace = directory / "work"
        self.root = self.home / ".copilot-shell/cosh-core/sessions"
        self.workspace.mkdir(parents=True)
        self.home.mkdir()

    @property
    def scope(self) -> Path:
        return self.scope_of(self.workspace)

    def scope_of(self, workspace: Path) -> Path:
        return self.root / hashlib.sha256(os.fsencode(workspace)).hexdigest()[:24]

    def envelope(self, number: int, **changed: Any) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "session_id": session_id(number),
            "workspace_scope": str(self.workspace),
            "created_at_ms": 11,
            "updated_at_ms": 22,
            "model": "qwen",
            "generation": 1,
            "messages": [message("hello")],
            **changed,
        }

    def put(self, number: int, raw: bytes | None = None, scope: Path | None = None, **changed: Any) -> Path:
        """A scoped file: ``raw``, or an envelope; its mtime is ``number`` seconds after a fixed day."""
        text = json.dumps(self.envelope(number, **changed), indent=2, ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        return self.put_in(scope or self.scope, number, text if raw is None else raw)

    def put_in(self, directory: Path, number: int, raw: bytes) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{session_id(number)}.json"
        path.write_bytes(raw)
        at = DAY_MS + number * 1000
        os.utime(path, ns=(at * 1_000_000, at * 1_000_000))
        return path

    def put_legacy(self, number: int, text: str = "old", directory: Path | None = None) -> Path:
        raw = json.dumps([message(text)]).encode()
        return self.put_in(directory or self.workspace / "sessions", number, raw)

    def configure(self, persist_dir: str) -> None:
        layer = self.workspace / ".copilot-shell/config.toml"
        layer.parent.mkdir(exist_ok=True)
        layer.write_text(f"[session]\npersist_dir = {json.dumps(persist_dir)}\n")

    def files(self) -> dict[str, bytes]:
        """Every file below home and workspace."""
        tops = (self.home, self.workspace)
        return {str(path): path.read_bytes() for top in tops for path in sorted(top.rglob("*")) if path.is_file()}


Asked = Callable[..., dict[str, Any]]
