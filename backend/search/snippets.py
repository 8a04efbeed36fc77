"""Where an entry matches, for people: a few words around it, cut between characters (field report 9). Pure."""

import contextlib
import sqlite3
import unicodedata
from collections.abc import Sequence

from backend.search.query import BREAK, TOKENIZER, segmented

_WORDS = 24
MAX_LENGTH = 240
ELLIPSIS = "…"
_JOINERS = ("\u200d", "\ufe0e", "\ufe0f")


def snippets(expression: str, texts: Sequence[str]) -> list[str | None]:
    """One of each text, None where it does not match: on one line, at most 240 characters, ``…`` where it was cut."""
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        memory.execute(f"CREATE VIRTUAL TABLE text USING fts5 (content, tokenize = '{TOKENIZER}')")
        rows = [(number, segmented(text)) for number, text in enumerate(texts)]
        memory.executemany("INSERT INTO text (rowid, content) VALUES (?, ?)", rows)
        sql = f"SELECT rowid, snippet(text, 0, '', '', '{ELLIPSIS}', {_WORDS}) FROM text WHERE text MATCH ?"
        found = dict(memory.execute(sql, (expression,)))
    return [_line(found[number]) if number in found else None for number in range(len(texts))]


def _line(text: str) -> str:
    line = " ".join(text.replace(BREAK, "").split())
    return line if len(line) <= MAX_LENGTH else cut(line, MAX_LENGTH - 1) + ELLIPSIS


def cut(text: str, length: int) -> str:
    """At most so many code points of a text, never a part of what is seen as one character."""
    while 0 < length < len(text) and _continues(text[length - 1], text[length]):
        length -= 1
    return text[:length]


def _continues(before: str, character: str) -> bool:
    """Whether a character belongs to the one before it: an accent, a joined or modified emoji, half a flag."""
    return (
        unicodedata.category(character) in ("Mn", "Me", "Mc")
        or character in _JOINERS
        or before == "\u200d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or ("\U0001f1e6" <= character <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff")
    )
