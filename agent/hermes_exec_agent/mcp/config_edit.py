"""Add a server to the user's configuration file, or remove one; comments and everything else stay."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.files import MCP_NAME
from hermes_exec.config.overrides import PREFIX
from hermes_exec.config.paths import exists, read_regular, to_printable, user_file, write_private
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec_agent.learning.proposals_edit import apply_change

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER = re.compile(r"^\s*\[")


def check_name(name: str) -> None:
    """Check the name of a server.

    Raises:
        UsageError: it cannot be a part of a tool's name.
    """
    if not MCP_NAME.match(name):
        raise UsageError(
            f"an MCP server cannot be called {name!r}",
            remedy="at most 29 letters, digits and -; also _, but not two in a row or at the end",
        )


def find_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's file.

    Raises:
        UsageError: it has the short form, as JSON, which has no servers.
    """
    named = environ.get(f"{PREFIX}CONFIG", "")
    path = Path(named).expanduser().absolute() if named else user_file(environ)
    if path.suffix == ".json":
        raise UsageError(f"{to_printable(path)} is JSON, and holds profiles alone", remedy="a hermes.toml")
    return path


def add_server(text: str, name: str, fields: Mapping[str, Any]) -> str:
    """Return the text of the file with a table ``[mcp.NAME]`` at its end.

    Raises:
        UsageError: the fields cannot be written there.
    """
    lines = [f"mcp.{name}.{key} = {_spell(value)}" for key, value in fields.items()]
    return apply_change("hermes.toml", "\n".join(lines), text)


def _spell(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return f"[{', '.join(map(_spell, value))}]"  # pyright: ignore[reportUnknownArgumentType]  JSON
        case _:
            return json.dumps(value, ensure_ascii=False)


def remove_server(text: str, name: str) -> str:
    """Return the text of the file without the table ``[mcp.NAME]`` and those below it.

    Raises:
        UsageError: the table is written in another form.
    """
    own = re.compile(rf"^\s*\[\s*mcp\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*[.\]]")
    kept: list[str] = []
    inside = False
    for line in text.split("\n"):
        if _HEADER.match(line):
            inside = own.match(line) is not None
        if not inside:
            kept.append(line)
    changed = "\n".join(kept).rstrip("\n") + "\n"
    wanted, found = tomllib.loads(text), tomllib.loads(changed)
    wanted.get("mcp", {}).pop(name, None)
    if {**wanted, "mcp": wanted.get("mcp") or {}} != {**found, "mcp": found.get("mcp", {})}:
        raise UsageError(f"[mcp.{name}] has another form than [mcp.NAME]", remedy="remove it by hand")
    return changed


def read_file(environ: Mapping[str, str]) -> str:
    """Return the text of the user's file; empty if there is none."""
    path = find_file(environ)
    return read_regular(path).decode() if exists(path) else ""


def write_file(text: str, environ: Mapping[str, str] = os.environ) -> None:
    """Replace the user's file atomically; its permissions stay.

    Raises:
        ConfigError: it cannot be written, and is as it was.
    """
    path = find_file(environ)
    try:
        path = path.resolve()  # a link to the file of another folder stays one
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        write_private(path, text.encode())
        path.chmod(mode)
    except OSError as error:
        raise ConfigError(f"{to_printable(path)} cannot be written: {error.strerror}") from error
