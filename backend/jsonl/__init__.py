"""The store on plain JSONL files (spec 2.9): ``JsonlStore``. Design and files: ``backend.jsonl.store``."""

from backend.jsonl.store import JsonlStore

__all__ = ["JsonlStore"]
