"""Whether an index leads to every entry it should, and to nothing else (field report 14)."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
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
    holders: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for row in rows_of(ask, session, indexed.n if stop is None else stop, max(first, indexed.start)):
        text = text_of(entry_of(row))
        if not text:
            continue
        place = known.pop(row.n, None)
        if place is None or place.time != row.time:
            return Verified(f"entry {row.n} is not in the search index, or with another time")
        if (word := _word(text)) is not None:
            holders[word][place.id] = row.n
    if known:
        return Verified("the search index has entries that are none")
    lost = [n for word, ids in holders.items() for n in _lost(index, word, ids)]
    return Verified(f"entry {min(lost)} is not found by a word of it" if lost else None, stop)


def _lost(index: SearchIndex, word: str, ids: Mapping[int, int]) -> Iterator[int]:
    """Those of the entries, by their places, that a word of them does not lead to."""
    found = index.matching(expression(word), min(ids), max(ids))
    return (n for id, n in ids.items() if id not in found)


def _word(text: str) -> str | None:
    """The longest of letters and digits that stand alone for any tokenizer, None if there is none."""
    return max(_WORD.findall(text), key=len, default=None)
