"""Text that people read on a terminal: nothing in it can steer one (spec 1.7 transcript.md, spec 4). Pure."""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKS = re.compile(r"[\t\n]")


def escaped(text: str) -> str:
    """``text`` without control characters, its line breaks and tabs kept: each becomes ``\\xNN`` or ``\\uNNNN``."""
    return _CONTROL.sub(_escape, text)


def escaped_name(text: str) -> str:
    """A name on one line: line breaks and tabs are escaped too."""
    return _BREAKS.sub(_escape, escaped(text))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
