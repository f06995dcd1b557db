"""Read one configuration file: TOML, or the short form as JSON."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from pydantic import BaseModel

from hermes_exec.config import registry
from hermes_exec.config.check import checked, profile_from_table, unknown_key
from hermes_exec.config.paths import read_regular, shown
from hermes_exec.config.settings import AgentSettings, AuditSettings, Entry, Limits, LogSettings, Origin
from hermes_exec.config.targets import PROFILE_NAME
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.config.profile import Profile

Section = TypeVar("Section", bound=BaseModel)

KEYS = ("default", "backends", "limits", "audit", "log", "agent", "models")
USERS_ALONE = ("audit", "log", "agent", "models")
"""Sections that a project has no say in: it must neither turn off the record of what it does, nor choose who reads a
conversation and gets the key."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What one file says; a section it leaves out has its defaults."""

    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    default: str | None = None
    limits: Limits = field(default_factory=Limits)
    audit: AuditSettings = field(default_factory=AuditSettings)
    log: LogSettings = field(default_factory=LogSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    models: dict[str, object] = field(default_factory=dict[str, object], repr=False)


def parse_file(content: bytes, path: Path, origin: Origin) -> Contents:
    """Read the content of a configuration file. Its profiles are checked later, when they are used.

    Raises:
        ConfigError: it is no TOML (or JSON), or has keys that mean nothing; names the file and the line.
    """
    where = shown(path)
    data = _decode(content, path)
    if path.suffix == ".json" and "backends" not in data:
        data = {"backends": data}
    for key in data:
        if key not in KEYS:
            remedy = f"[backends.{key}]" if isinstance(data[key], Mapping) else ""
            raise ConfigError(f"{where}: {unknown_key(key, KEYS)}", remedy=remedy)
        if origin.layer == "project" and key in USERS_ALONE:
            raise ConfigError(f"{where}: [{key}] belongs in your own file; a project has no say in it")
    default = data.get("default")
    if not (default is None or (isinstance(default, str) and default)):
        raise ConfigError(f"{where}: 'default' should be the name of a profile or a one-line target")
    return Contents(
        entries=_entries(data.get("backends", {}), where, origin, path.parent),
        default=default,
        limits=_section(Limits, data, "limits", where),
        audit=_section(AuditSettings, data, "audit", where),
        log=_section(LogSettings, data, "log", where),
        agent=_section(AgentSettings, data, "agent", where),
        models=_models(data.get("models", {}), where),
    )


def profiles_from_mapping(source: Mapping[str, object] | Path, name: str = "") -> dict[str, Profile]:
    """Check profiles given as ``{name: {"type": …, …}}``, or as the path of a JSON file that holds it.

    ``name`` says in complaints where the mapping comes from.

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
        text = content.decode()
        data: object = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{shown(path)}: nested too deeply") from None
    except ValueError as error:  # of TOML, of JSON and of UTF-8; each names the place, none the text there
        raise ConfigError(f"{shown(path)}: {error}", remedy="mend that line, or move the file away") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{shown(path)}: should hold a table of profiles")
    return cast("dict[str, object]", data)


def _entries(table: object, where: str, origin: Origin, folder: Path | None) -> dict[str, Entry]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: 'backends' should be a table of profiles")
    entries: dict[str, Entry] = {}
    for name, profile in cast("Mapping[object, object]", table).items():
        if not (isinstance(name, str) and PROFILE_NAME.match(name)):
            raise ConfigError(f"{where}: a profile cannot be called {name!r}", remedy="letters, digits and . _ -")
        if name == "local" and _type(profile) not in (None, "local"):
            raise ConfigError(f"{where}: the profile 'local' is this machine, so its type can only be 'local'")
        entries[name] = Entry(profile, origin, folder)
    return entries


def _type(profile: object) -> object:
    kind = cast("Mapping[str, object]", profile).get("type") if isinstance(profile, Mapping) else None
    return registry.canonical(kind) if isinstance(kind, str) else kind


def _models(table: object, where: str) -> dict[str, object]:
    """The tables of models, which are checked where they are used."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: 'models' should be a table of models")
    return {str(name): each for name, each in cast("Mapping[object, object]", table).items()}


def _section(model: type[Section], data: Mapping[str, object], key: str, where: str) -> Section:
    table = data.get(key, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {key!r} should be a table")
    return checked(model, cast("Mapping[str, object]", table), f"[{key}] in {where}")
