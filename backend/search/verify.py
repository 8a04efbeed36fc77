"""Whether an index leads to every entry it should, and to nothing else (field report 14)."""

import re
from typing import NamedTuple

from backend.asking import Ask, rows_of
from backend.lines import entry_of
from backend.search.index import SearchIndex
from backend.search.query import expression
from backend.search.texts import text_of

AT_ONCE = 4096
"""Entries that one call looks at, so that nothing is held for longer."""
# Next to other letters or marks, even to those that were defined later, it would be a part of a word.
_WORD = re.compile("(?<![A-Za-z0-9\x80-\U0010ffff])[A-Za-z0-9]{3,64}(?![A-Za-z0-9\x80-\U0010ffff])")


class Verified(NamedTuple):
    """``reason``: what is wrong, None if nothing is. ``following``: the entry to go on from, None at the end."""

    reason: str | None
    following: int | None = None


def drift(index: SearchIndex, session: int, first: int, ask: Ask) -> Verified:
    """What is wrong with the index of some entries of a session; bring it up to date before.

    Each entry that has text must be in it, and be found by its longest plain word. ``Missing``: it is gone.
    """
    indexed = index.indexed(session)
    if indexed is None:
        return Verified("the session is not in the search index")
    stop = first + AT_ONCE if first + AT_ONCE < indexed.n else None
    known = index.entries(session, first, stop)
    for row in rows_of(ask, session, indexed.n if stop is None else stop, max(first, indexed.start)):
        text = text_of(entry_of(row))
        if not text:
            continue
        if known.pop(row.n, None) != row.time:
            return Verified(f"entry {row.n} is not in the search index, or with another time")
        word = _word(text)
        if word is not None and not index.leads_to(expression(word), session, row.n):
            return Verified(f"entry {row.n} is not found by a word of it")
    return Verified("the search index has entries that are none" if known else None, stop)


def _word(text: str) -> str | None:
    """The longest of letters and digits that stand alone for any tokenizer, None if there is none."""
    return max(_WORD.findall(text), key=len, default=None)
