"""The digest of a request's header, which tells whether a provider's cache still holds (spec 2.6).

Pure. Canonical JSON is RFC 8785's: equal headers have equal digests, whatever wrote them.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import rfc8785

from backend.errors import SessionError

HEADER_KEYS = (
    "provider",
    "model",
    "reasoningEffort",
    "temperature",
    "maxTokens",
    "stop",
    "system",
    "prelude",
    "tools",
)


def canonical_header(header: Mapping[str, Any]) -> bytes:
    """The RFC 8785 JSON of the nine keys, those that are absent left out.

    ``SessionError`` for what it cannot say: lone surrogates, integers beyond 2**53, values that are not JSON.
    """
    try:
        return rfc8785.dumps({key: header[key] for key in HEADER_KEYS if key in header})
    except (ValueError, RecursionError) as error:
        raise SessionError(f"the header has no canonical JSON: {error}") from None


def prompt_digest(header: Mapping[str, Any]) -> str:
    """``promptDigest``: the lowercase hex SHA-256 of ``canonical_header``."""
    return hashlib.sha256(canonical_header(header)).hexdigest()
