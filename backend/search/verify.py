"""Whether an index leads to every entry it should, and to nothing else (field report 14)."""

import re
from collections.abc import Iterator

from backend.asking import Ask, rows_of
from backend.lines import entry_of
from backend.search.index import Indexed, SearchIndex
from backend.search.query import expression
from backend.search.texts import text_of

# Next to other letters or marks, even to those that were defined later, it would be a part of a word.
_WORD = re.compile("(?<![A-Za-z0-9\x80-\U0010ffff])[A-Za-z0-9]{3,64}(?![A-Za-z0-9\x80-\U0010ffff])")


def drift(index: SearchIndex, session: int, ask: Ask) -> str | None:
    """What is wrong with the index of a session, None if nothing is; bring it up to date before.

    Each entry that has text must be in it, and be found by its longest plain word. ``Missing``: it is gone.
    """
    indexed = index.indexed(session)
    if indexed is None:
        return "the session is not in the search index"
    known = index.entries(session)
    for n, time, text in _texts(ask, session, indexed):
        if known.pop(n, None) != time:
            return f"entry {n} is not in the search index, or with another time"
        word = _word(text)
        if word is not None and not index.leads_to(expression(word), session, n):
            return f"entry {n} is not found by a word of it"
    return "the search index has entries that are none" if known else None


def _texts(ask: Ask, session: int, indexed: Indexed) -> Iterator[tuple[int, int, str]]:
    for row in rows_of(ask, session, indexed.n, indexed.start):
        if text := text_of(entry_of(row)):
            yield row.n, row.time, text


def _word(text: str) -> str | None:
    """The longest of letters and digits that stand alone for any tokenizer, None if there is none."""
    return max(_WORD.findall(text), key=len, default=None)
