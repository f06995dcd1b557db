"""Every setting that applies, as text, with its source; for ``hermes-exec config``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from pydantic import BaseModel

from hermes_exec.config.load import merge_layers, read_layers
from hermes_exec.config.overrides import PREFIX
from hermes_exec.config.paths import find_project_file, user_file
from hermes_exec.config.secrets import SecretSource
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hermes_exec.config.load import Layers
    from hermes_exec.config.settings import ProfileEntry, Settings

DEFAULT = "default"
"""The source of a value that nothing sets."""
_HIDDEN = "(hidden)"
_SECRET_KEY = re.compile(
    r"(?:^|[._-])(?:api_?)?(?:key|token|secrets?|password|passwd|credentials?|authorization|headers)(?:$|[._-])",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_VARIABLES = {
    ("limits", "timeout_s"): "TIMEOUT",
    ("limits", "max_output"): "MAX_OUTPUT",
    ("audit", "enabled"): "AUDIT",
    ("log", "level"): "LOG",
    ("log", "format"): "LOG_FORMAT",
}


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One setting. ``value`` has no secrets, so it may be shown."""

    key: str
    """The key as in ``hermes.toml``, such as ``log.level``."""
    value: object
    """Text, numbers, and lists and tables of these."""
    origin: str
    """The file, the variable, or ``default``."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that is read, or would be."""

    path: Path
    role: Literal["user", "project"]
    state: str
    """``read``, ``not there`` or ``ignored``; a warning says why it is ignored."""


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """The files, the settings and the warnings of this process, in this folder."""

    files: list[ConfigFile]
    settings: list[EffectiveSetting]
    warnings: tuple[str, ...]


def find_effective(environ: Mapping[str, str] | None = None) -> EffectiveConfig:
    """Return the files and every setting with its source.

    Raises:
        ConfigError: a file or a variable is wrong.
    """
    environ = os.environ if environ is None else environ
    layers = read_layers(environ=environ)
    merged = merge_layers(layers, environ)
    return EffectiveConfig(_list_files(layers, environ), list(_list_settings(layers, merged)), merged.warnings)


def hide_secrets(value: object, key: str = "") -> object:
    """Return a value of a configuration file without secrets: below a key of secrets only sources remain.

    The name and the password in an address are removed too.
    """
    if _SECRET_KEY.search(key) and value not in (None, ""):
        try:
            return str(SecretSource.parse(value))
        except ValueError:
            if not isinstance(value, Mapping | list | tuple | SecretSource):
                return _HIDDEN
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(name): hide_secrets(each, f"{key}.{name}") for name, each in items}
    if isinstance(value, list | tuple):
        return [hide_secrets(each, key) for each in cast("Sequence[object]", value)]
    if isinstance(value, str):
        return _USERINFO.sub("…", value)
    return value if isinstance(value, int | float | None) else str(value)


def _list_files(layers: Layers, environ: Mapping[str, str]) -> list[ConfigFile]:
    named = environ.get(f"{PREFIX}CONFIG")
    own = layers.user_path or (Path(named) if named else user_file(environ))
    files = [ConfigFile(own, "user", "read" if layers.user_path else "not there")]
    try:
        project = find_project_file(Path.cwd())
    except FileNotFoundError:
        project = None
    if project is not None and project.resolve() != own.resolve():
        files.insert(0, ConfigFile(project, "project", "read" if layers.project_path else "ignored"))
    return files


def _list_settings(layers: Layers, merged: Settings) -> Generator[EffectiveSetting]:
    origin = merged.default_origin
    yield EffectiveSetting("default", merged.default, str(origin) if origin.detail else DEFAULT)
    for name, entry in merged.profiles.entries.items():
        yield EffectiveSetting(f"backends.{name}", _describe_profile(merged, name, entry), _describe_origin(entry))
    for name, members in merged.groups.items():
        path = layers.user_path if name in layers.user.groups else layers.project_path
        yield EffectiveSetting(f"groups.{name}", list(members), str(path))
    yield EffectiveSetting("hooks", list(merged.hooks), str(layers.user_path) if merged.hooks else DEFAULT)
    for section in ("limits", "audit", "log", "agent", "memory", "learning"):
        yield from _list_section(layers, merged, section)
    for name, table in merged.models.items():
        yield EffectiveSetting(f"models.{name}", hide_secrets(table), str(layers.user_path))


def _describe_profile(merged: Settings, name: str, entry: ProfileEntry) -> str:
    """Return the target of a profile; its other values are those of ``profile show``."""
    try:
        return str(hide_secrets(merged.profiles[name].target_text()))
    except HermesError:
        table: object = entry.table
        kind = cast("Mapping[str, object]", table).get("type") if isinstance(table, Mapping) else None
        return f"{kind or 'no type'} (invalid)"


def _describe_origin(entry: ProfileEntry) -> str:
    return str(entry.origin) if entry.origin.detail else DEFAULT


def _list_section(layers: Layers, merged: Settings, section: str) -> Generator[EffectiveSetting]:
    model: BaseModel = getattr(merged, section)
    for key in type(model).model_fields:
        origin = _find_origin(layers, section, key)
        yield from _flatten(f"{section}.{key}", getattr(model, key), origin, is_set=key in model.model_fields_set)


def _flatten(key: str, value: object, origin: str, *, is_set: bool) -> Generator[EffectiveSetting]:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            given = is_set and name in value.model_fields_set
            yield from _flatten(f"{key}.{name}", getattr(value, name), origin, is_set=given)
    else:
        yield EffectiveSetting(key, hide_secrets(value, key.rpartition(".")[2]), origin if is_set else DEFAULT)


def _find_origin(layers: Layers, section: str, key: str) -> str:
    """Return the strongest layer that sets a key."""
    environment, flags = layers.overrides
    if key in getattr(flags, section).model_fields_set:
        return "flag"
    if key in getattr(environment, section).model_fields_set:
        return PREFIX + _VARIABLES[section, key]
    if key in getattr(layers.project, section).model_fields_set:
        return str(layers.project_path)
    if key in getattr(layers.user, section).model_fields_set:
        return str(layers.user_path)
    return DEFAULT
