"""Texts of stored sessions as clients see them: cut to bytes, previewed, without control characters (spec 5).

Pure. White space is Unicode's White_Space, which U+001C–1F are not; control characters are category Cc.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PREVIEW_CHARACTERS = 160

_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)))
_WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_WORD = f"[^{_WHITE}]+"

# How cosh-shell wraps what a person typed; what stands between these lines is its own and changes.
_WRAPPED = "Handle this natural-language shell prompt request for a Shell-first assistant.\n"
_INPUT = "\nuser_input: "
_FRAME = "\n\nruntime_frame:\n"
_CONTRACT = "\n\ncosh-shell Agent contract:\n"


def bounded(text: str, limit: int) -> str:
    """``text`` without control characters in at most ``limit`` bytes of UTF-8, with ``…`` where it was cut."""
    clean = text.translate(_CONTROLS)
    raw = clean.encode()
    if len(raw) <= limit:
        return clean
    return raw[: limit - len("…".encode())].decode("utf-8", "ignore") + "…"


def preview(texts: Iterable[str]) -> str | None:
    """The words of texts on one line of at most 160 characters; None where there are none."""
    import re

    line = ""
    for text in texts:
        for match in re.finditer(_WORD, text):
            word = match[0].translate(_CONTROLS)
            line = f"{line} {word}" if line else word
            if len(line) > MAX_PREVIEW_CHARACTERS:
                return line[: MAX_PREVIEW_CHARACTERS - 1] + "…"
    return line or None


def typed_by_user(prompt: str) -> str:
    """What a person typed where cosh-shell wrapped it, otherwise the prompt as it is."""
    if not prompt.startswith(_WRAPPED):
        return prompt
    end = prompt.rfind(_CONTRACT)
    start = prompt.find(_INPUT) + len(_INPUT)
    if start < len(_INPUT) or start > end:
        return prompt
    frame = prompt.rfind(_FRAME, start, end)
    return (frame >= 0 and prompt[start:frame].strip(_WHITE)) or prompt
