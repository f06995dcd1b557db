"""Read one configuration file: TOML, or the short form as JSON."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from pydantic import BaseModel

from hermes_exec.config.check import describe_unknown_key, profile_from_table, validate_table
from hermes_exec.config.paths import read_regular, to_printable
from hermes_exec.config.registry import suggest_name
from hermes_exec.config.settings import (
    AgentSettings,
    AuditSettings,
    GatewaySettings,
    LearningSettings,
    LimitSettings,
    LogSettings,
    MailSettings,
    McpSettings,
    MemorySettings,
    Origin,
    ProfileEntry,
    Sections,
)
from hermes_exec.config.targets import PROFILE_NAME
from hermes_exec.config.type_names import resolve_alias
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.config.profile import Profile

Section = TypeVar("Section", bound=BaseModel)

KEYS = (
    "default",
    "backends",
    "groups",
    "limits",
    "audit",
    "log",
    "hooks",
    "agent",
    "memory",
    "learning",
    "gateway",
    "mail",
    "mcp",
    "models",
)
USERS_ALONE = ("audit", "log", "hooks", "agent", "memory", "learning", "gateway", "mail", "mcp", "models")
"""Keys that only the user's own file may have. A project must neither turn off the record of its commands, nor choose
the hooks that receive them, nor the model that receives a conversation and its API key, nor the servers whose programs
are started here."""
MCP_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,28}(?<!_)\Z")
"""The name of a server of the Model Context Protocol, which is a part of its tools' names."""


@dataclass(frozen=True, slots=True)
class FileContents(Sections):
    """The content of one file; a missing section has its defaults."""

    entries: dict[str, ProfileEntry] = field(default_factory=dict[str, ProfileEntry])
    default: str | None = None


def parse_file(content: bytes, path: Path, origin: Origin) -> FileContents:
    """Parse a configuration file. Its profiles are validated later, when they are used.

    Raises:
        ConfigError: it is not valid TOML (or JSON), or has unknown keys; the message names the file and the line.
    """
    where = to_printable(path)
    data = _decode(content, path)
    if path.suffix == ".json" and "backends" not in data:
        data = {"backends": data}
    for key in data:
        if key not in KEYS:
            is_profile = isinstance(data[key], Mapping) and not suggest_name(key, KEYS, "")
            remedy = f"[backends.{key}]" if is_profile else ""
            raise ConfigError(f"{where}: {describe_unknown_key(key, KEYS)}", remedy=remedy)
        if origin.layer == "project" and key in USERS_ALONE:
            name = f"[{key}]" if isinstance(data[key], Mapping) else repr(key)
            raise ConfigError(f"{where}: {name} belongs in your own file; a project's file may not set it")
    default = data.get("default")
    if not (default is None or (isinstance(default, str) and default)):
        raise ConfigError(f"{where}: 'default' should be the name of a profile or a one-line target")
    return FileContents(
        entries=_entries(data.get("backends", {}), where, origin, path.parent),
        groups=_groups(data.get("groups", {}), where),
        default=default,
        limits=_section(LimitSettings, data, "limits", where),
        audit=_section(AuditSettings, data, "audit", where),
        log=_section(LogSettings, data, "log", where),
        hooks=_hooks(data.get("hooks", []), where),
        agent=_section(AgentSettings, data, "agent", where),
        memory=_section(MemorySettings, data, "memory", where),
        learning=_section(LearningSettings, data, "learning", where),
        gateway=_section(GatewaySettings, data, "gateway", where),
        mail=_section(MailSettings, data, "mail", where),
        mcp=_mcp(data.get("mcp", {}), where, path.parent),
        models=_models(data.get("models", {}), where),
    )


def profiles_from_mapping(source: Mapping[str, object] | Path, name: str = "") -> dict[str, Profile]:
    """Validate profiles given as ``{name: {"type": …, …}}``, or as the path of a JSON file that holds this.

    ``name`` is the source that error messages name.

    Raises:
        ConfigError: one line for each problem of any profile.
    """
    if isinstance(source, Mapping):
        table, origin, folder = source, Origin("user", name), None
    else:
        table, origin, folder = (
            _decode(read_regular(source), source),
            Origin("user", str(source)),
            source.parent,
        )
    entries = _entries(table, str(origin) if origin.detail else "profiles", origin, folder)
    profiles: dict[str, Profile] = {}
    problems: list[str] = []
    for key, entry in entries.items():
        within = f" in {origin}" if origin.detail else ""
        try:
            profiles[key] = profile_from_table(entry.table, f"profile {key!r}{within}", folder)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return profiles


def _decode(content: bytes, path: Path) -> Mapping[str, object]:
    try:
        text = content.decode("utf-8-sig")  # editors of Windows begin a file with a mark
        data: object = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{to_printable(path)}: nested too deeply") from None
    except UnicodeDecodeError as error:
        what = f"{to_printable(path)}: byte {error.start + 1} is not valid UTF-8"
        raise ConfigError(what, remedy="save it as UTF-8, or move the file away") from None
    except ValueError as error:  # of TOML and of JSON; each names the position, none the text there
        raise ConfigError(f"{to_printable(path)}: {error}", remedy="fix that line, or move the file away") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{to_printable(path)}: should hold a table of profiles")
    return cast("dict[str, object]", data)


def _entries(table: object, where: str, origin: Origin, folder: Path | None) -> dict[str, ProfileEntry]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: 'backends' should be a table of profiles")
    entries: dict[str, ProfileEntry] = {}
    for name, profile in cast("Mapping[object, object]", table).items():
        if not (isinstance(name, str) and PROFILE_NAME.match(name)):
            raise ConfigError(f"{where}: a profile cannot be called {name!r}", remedy="letters, digits and . _ -")
        if name == "local" and _type(profile) not in (None, "local"):
            raise ConfigError(f"{where}: the profile 'local' is this machine, so its type can only be 'local'")
        entries[name] = ProfileEntry(profile, origin, folder)
    return entries


def _type(profile: object) -> object:
    kind = cast("Mapping[str, object]", profile).get("type") if isinstance(profile, Mapping) else None
    return resolve_alias(kind) if isinstance(kind, str) else kind


def _models(table: object, where: str) -> dict[str, object]:
    """Return the tables of models, which are validated where they are used."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: 'models' should be a table of models")
    return {str(name): each for name, each in cast("Mapping[object, object]", table).items()}


def _mcp(table: object, where: str, folder: Path) -> dict[str, McpSettings]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: 'mcp' should be a table of servers")
    servers: dict[str, McpSettings] = {}
    for name, server in cast("Mapping[object, object]", table).items():
        if not (isinstance(name, str) and MCP_NAME.match(name)):
            raise ConfigError(
                f"{where}: an MCP server cannot be called {name!r}",
                remedy="at most 29 letters, digits and -; also _, but not two in a row or at the end",
            )
        if not isinstance(server, Mapping):
            raise ConfigError(f"{where}: 'mcp.{name}' should be a table")
        fields = cast("Mapping[str, object]", server)
        servers[name] = validate_table(McpSettings, fields, f"[mcp.{name}] in {where}", folder)
    return servers


def _groups(table: object, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: 'groups' should be a table of lists of targets")
    groups: dict[str, tuple[str, ...]] = {}
    for name, members in cast("Mapping[object, object]", table).items():
        if not (isinstance(name, str) and PROFILE_NAME.match(name)):
            raise ConfigError(f"{where}: a group cannot be called {name!r}", remedy="letters, digits and . _ -")
        texts = cast("list[object]", members) if isinstance(members, list) else []
        found = [text for text in texts if isinstance(text, str) and text]
        if not found or len(found) != len(texts):
            raise ConfigError(f"{where}: the group {name!r} should be a list of targets", remedy='["web1", "web2"]')
        groups[name] = tuple(found)
    return groups


def _hooks(names: object, where: str) -> tuple[str, ...]:
    texts = [name for name in cast("list[object]", names) if isinstance(name, str)] if isinstance(names, list) else []
    if not isinstance(names, list) or len(texts) != len(cast("list[object]", names)):
        raise ConfigError(f"{where}: 'hooks' should be a list of names", remedy='hooks = ["NAME"]')
    return tuple(dict.fromkeys(texts))


def _section(model: type[Section], data: Mapping[str, object], key: str, where: str) -> Section:
    table = data.get(key, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {key!r} should be a table")
    return validate_table(model, cast("Mapping[str, object]", table), f"[{key}] in {where}")
