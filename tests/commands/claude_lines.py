"""Lines of a Claude Code transcript."""

import json

UUID = "6a1e7c52-0d2b-4b53-9d7e-0a3c5b1f2e4d"


def claude_line(role: str, content: object, **more: object) -> str:
    record = {"type": role, "sessionId": UUID, "cwd": "/w", "timestamp": "2026-01-01T00:00:00Z", **more}
    return json.dumps({**record, "message": {"role": role, "content": content, "model": "model-1"}}) + "\n"
