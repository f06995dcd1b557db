"""SOUL.md: the agent's character, in the person's own words, next to their ``hermes.toml``."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from hermes_exec.config.paths import config_folder, read_regular, to_printable
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAME = "SOUL.md"
LIMIT = 20_000
"""Characters that are read."""


def read_soul(environ: Mapping[str, str], tell: Callable[[str], None]) -> str:
    """Return the text of the file; empty if there is none, or if it is not to be used, which ``tell`` reports."""
    path = config_folder(environ) / NAME
    try:
        found = path.stat()
    except OSError:
        return ""
    shown = to_printable(path)
    if found.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(found.st_mode) & 0o022:
        tell(f"{shown} is not used: other users can write it. Try: chmod go-w {shown}")
        return ""
    try:
        text = read_regular(path).decode().strip()
    except (ConfigError, UnicodeDecodeError) as error:
        tell(f"{shown} is not used: {error}")
        return ""
    if len(text) > LIMIT:
        tell(f"{shown} has {len(text)} characters; the first {LIMIT} are used")
    return text[:LIMIT]
