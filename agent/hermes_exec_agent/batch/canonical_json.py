"""JSON values in one form alone, and their digests."""

from __future__ import annotations

import hashlib
import json

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_of(value: object) -> str:
    """Return the SHA-256 of a JSON value in canonical form, in hexadecimal."""
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


def refuse_constant(name: str) -> object:
    """Refuse NaN and Infinity, for ``parse_constant`` of ``json.loads``."""
    raise ValueError(f"{name} is not a number of JSON")
