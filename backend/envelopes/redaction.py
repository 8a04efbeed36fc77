"""Secrets in messages become ``<redacted>``, on disk and on load (spec 5).

Pure. A heuristic like every such list: rules by the look of a secret, and by the name that it is given. A rule is
compiled and tried only where one of its hints occurs, so that ordinary text costs a few substring searches; the time
of each grows as the text does, whatever the text.
"""

from __future__ import annotations

import functools
import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REDACTED = "<redacted>"

_NAMES = (
    r"(?:alibaba[_-]?cloud[_-]?|aws[_-]?)?access[_-]?key[_-]?(?:id|secret)|aws[_-]?secret[_-]?access[_-]?key"
    r"|(?:dashscope[_-]?|openai[_-]?)?api[_-]?key|client[_-]?secret|(?:security|refresh|access|github|id)[_-]?token"
    r"|password|passphrase|passwd|token|secret"
)
_NAME_HINTS = ("key", "token", "secret", "passw", "passphrase")
_SENSITIVE_KEYS = frozenset(
    (
        *("password", "passwd", "passphrase", "secret", "clientsecret", "authorization", "cookie", "setcookie"),
        *("token", "accesstoken", "refreshtoken", "idtoken", "githubtoken", "securitytoken"),
        *("apikey", "openaiapikey", "dashscopeapikey", "accesskeyid", "accesskeysecret", "awssecretaccesskey"),
    )
)


# (hints, pattern, replacement): replaces matches of the pattern where a hint occurs in the lower-case text.
RULES = (
    (
        ("-----begin ",),
        r"(?is)-----BEGIN (?:[^\n-]*)PRIVATE KEY-----.*?(?:-----END [^\n-]*PRIVATE KEY-----|\Z)",
        REDACTED,
    ),
    (("cookie",), r"(?im)^((?:set-)?cookie\s*:\s*).*$", rf"\1{REDACTED}"),
    (
        ("authorization",),
        r"(?i)(\bauthorization\s*+[:=]\s*+)(?:(bearer|basic|token)\b\s*+)?[^\s,;&]+",
        rf"\1\2 {REDACTED}",
    ),
    (("bearer",), r"(?i)(\bbearer\s+)[\w.~+/=-]+", rf"\1{REDACTED}"),
    (("://",), r"(://[^/\s:@]+:)[^@/\s]+@", rf"\1{REDACTED}@"),
    (
        ("--",),
        rf"(?i)((?:^|\s)--(?:{_NAMES}|authorization)(?:=|\s+)[\"']?)[^\s,;&\"']+",
        rf"\1{REDACTED}",
    ),
    (_NAME_HINTS, rf"(?i)([\"']?(?:{_NAMES})[\"']?\s*[=:]\s*[\"']?)[^\s,;&\"']+", rf"\1{REDACTED}"),
    (("gh", "github_pat_"), r"\b(?:gh[pousr]|github_pat)_\w{20,}", REDACTED),
    (
        ("sk-", "sk_", "glpat-", "npm_", "hf_", "aiza", "xox"),
        r"\b(?:(?:sk|glpat)-[\w-]{10,}|sk_(?:live|test)_\w{10,}|(?:npm|hf)_\w{20,}|AIza[\w-]{20,}|xox[baprs]-[\w-]{10,})",
        REDACTED,
    ),
    (("eyj",), r"\beyJ[\w-]{5,}(?:\.[\w-]{5,}){2}", REDACTED),
    (("akia", "asia"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", REDACTED),
    (("ltai",), r"\bLTAI[A-Za-z0-9]{12,32}\b", REDACTED),
)


def redacted(text: str) -> str:
    """``text`` without what looks like a secret."""
    lower = text.lower()
    for hints, pattern, replacement in RULES:
        if any(hint in lower for hint in hints):
            text = _compiled(pattern).sub(replacement, text)
    return text


def redacted_message(message: dict[str, Any]) -> dict[str, Any]:
    """A valid message without secrets in its texts, tool results and arguments of tool calls."""
    clean = dict(message)
    content = message["content"]
    if isinstance(content, str):
        clean["content"] = redacted(content)
    else:
        clean["content"] = [{**block, _text_of(block): redacted(block[_text_of(block)])} for block in content]
    if message.get("tool_calls"):
        clean["tool_calls"] = [_redacted_call(call) for call in message["tool_calls"]]
    return clean


def redacted_value(value: Any) -> Any:
    """A JSON value without secrets: whole values of telling keys, and in every string."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [redacted_value(item) for item in value]
    if isinstance(value, dict):
        return {key: REDACTED if _is_sensitive(key) else redacted_value(item) for key, item in value.items()}
    return value


def _text_of(block: dict[str, Any]) -> str:
    return "text" if block["type"] == "text" else "content"


def _redacted_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": _redacted_arguments(function["arguments"])}}


def _redacted_arguments(text: str) -> str:
    """Arguments are JSON in a string, or what a model made of it."""
    try:
        return json.dumps(redacted_value(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return redacted(text)


def _is_sensitive(key: str) -> bool:
    return "".join(filter(str.isalnum, key)).lower() in _SENSITIVE_KEYS


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
