"""What a search means, and how text is cut into words for it. Pure.

A query is words, all of which an entry must have, and "phrases in quotes". Nothing in it is an operator. Case and
accents do not count. Scripts that are written without spaces are searched character by character: a run of them is a
phrase.
"""

import re
import unicodedata

from backend.errors import InvalidValue

TOKENIZER = "unicode61 remove_diacritics 2"
BREAK = "\x1f"
"""Put between characters that are words of their own; the tokenizer takes it for a space, and nobody writes it."""

MAX_QUERY = 1024
_TERM = re.compile(r'"([^"]*)"?|([^\s"]+)')
# Han, kana, Hangul, Thai, Lao, Khmer, Burmese.
_ALONE = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)


def segmented(text: str) -> str:
    """Text as it is indexed: breaks around each character that is a word by itself."""
    text = text.replace("\0", BREAK)
    if text.isascii():
        return text
    # SQLite takes no lone surrogate, which a foreign history may hold.
    return _ALONE.sub(f"{BREAK}\\1{BREAK}", text.encode(errors="replace").decode())


def expression(text: str) -> str:
    """The FTS5 expression that means ``text``; ``InvalidValue``: no word, or more than 1024 characters."""
    if len(text) > MAX_QUERY:
        raise InvalidValue(f"a search has at most {MAX_QUERY} characters")
    terms = [term for quoted, plain in _TERM.findall(text) if _has_word(term := quoted or plain)]
    if not terms:
        raise InvalidValue("there is no word to search for: give letters or digits")
    return " AND ".join(f'"{segmented(term)}"' for term in dict.fromkeys(terms))


def _has_word(term: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in term)
