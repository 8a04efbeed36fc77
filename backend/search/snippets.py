"""Where an entry matches, for people: a few words around it, cut between characters (field report 9). Pure."""

import contextlib
import sqlite3
import unicodedata
from collections.abc import Sequence

from backend.search.query import BREAK, TOKENIZER, segmented

_WORDS = 24
_PASSAGE = 1024
MAX_LENGTH = 240
ELLIPSIS = "…"
_JOINERS = ("\u200d", "\ufe0e", "\ufe0f")


def snippets(expression: str, texts: Sequence[str]) -> list[str | None]:
    """One of each text, None where it does not match: on one line, at most 240 characters, ``…`` where it was cut."""
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        for table in ("text", "passage"):
            memory.execute(f"CREATE VIRTUAL TABLE {table} USING fts5 (content, tokenize = '{TOKENIZER}')")
        rows = [(number, segmented(text)) for number, text in enumerate(texts)]
        memory.executemany("INSERT INTO text (rowid, content) VALUES (?, ?)", rows)
        matching = {number for (number,) in memory.execute("SELECT rowid FROM text WHERE text MATCH ?", (expression,))}
        return [_line(_snippet(memory, expression, text)) if number in matching else None for number, text in rows]


def _snippet(memory: sqlite3.Connection, expression: str, text: str) -> str:
    """Of a passage that has all of ``expression`` if there is one, else its first phrase.

    SQLite takes the square of the matches in what it makes a snippet of: hours for a megabyte of one word.
    """
    passages = _passages(text)
    memory.execute("DELETE FROM passage")
    memory.executemany("INSERT INTO passage (content) VALUES (?)", ((passage,) for passage in passages))
    sql = f"SELECT snippet(passage, 0, '', '', '{ELLIPSIS}', {_WORDS}) FROM passage WHERE passage MATCH ? LIMIT 1"
    for wanted in (expression, expression[: expression.index('"', 1) + 1]):
        if row := memory.execute(sql, (wanted,)).fetchone():
            return str(row[0])
    return passages[0]


def _passages(text: str) -> list[str]:
    """Parts of a text, each of which begins in the middle of the one before."""
    if len(text) <= _PASSAGE:
        return [text]
    parts = []
    for at in range(0, len(text) - _PASSAGE // 2, _PASSAGE // 2):
        start = at
        while 0 < start < len(text) and _continues(text[start - 1], text[start]):
            start += 1
        part = cut(text[start : start + _PASSAGE + 1], _PASSAGE)
        parts.append(ELLIPSIS * (start > 0) + part + ELLIPSIS * (start + len(part) < len(text)))
    return parts


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
