"""Tokens of messengers, known by their shapes, in texts that leave the program as logs and errors."""

from __future__ import annotations

import re

_SHAPES = (
    ("telegram", r"(?<![0-9])[0-9]{5,}(?::|%3A)[A-Za-z0-9_-]{30,}"),  # also after /bot in a URL
    ("slack", r"(?<![A-Za-z0-9])xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9.-]{8,}"),
    ("slack", r"(?<![A-Za-z0-9])xapp-[A-Za-z0-9-]{8,}"),
    ("slack", r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9/_-]+"),
    (
        "discord",
        r"(?<![A-Za-z0-9_-])(?:mfa\.[A-Za-z0-9_-]{60,}|[A-Za-z0-9_-]{22,30}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{25,})",
    ),
    ("discord", r"(?<=/api/webhooks/)[0-9]+/[A-Za-z0-9_-]{20,}"),
    ("meta", r"(?<![A-Za-z0-9])EAA[A-Za-z0-9]{20,}"),
)
_PATTERN = re.compile("|".join(f"({shape})" for _, shape in _SHAPES))


def redact_tokens(text: str) -> str:
    """Return ``text`` with each token of a messenger replaced by ``[token of PLATFORM]``."""
    return _PATTERN.sub(lambda found: f"[token of {_SHAPES[(found.lastindex or 1) - 1][0]}]", text)
