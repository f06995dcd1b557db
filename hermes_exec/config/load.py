"""Load the settings of this run.

The layers, strongest first: flags, ``HERMES_EXEC_*``, the project's ``hermes.toml`` once it is trusted, the user's
own file, the built-in target ``local``.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from hermes_exec.config.check import prefix_error
from hermes_exec.config.files import FileContents, parse_file, profiles_from_mapping
from hermes_exec.config.overrides import PREFIX, find_misspelt_variables, override_layers
from hermes_exec.config.paths import find_project_file, may_exist, read_regular, to_printable, user_file
from hermes_exec.config.settings import (
    BUILT_IN,
    AuditSettings,
    LimitSettings,
    LogSettings,
    Origin,
    Overrides,
    ProfileEntry,
    Profiles,
    Sections,
    Settings,
)
from hermes_exec.config.starter import write_default
from hermes_exec.config.targets import Target, parse_target
from hermes_exec.config.trust import Trust, distrust, is_trusted, read_trust, trust
from hermes_exec.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Overrides",
    "Settings",
    "check",
    "distrust",
    "find_project_file",
    "is_trusted",
    "load_settings",
    "profiles_from_mapping",
    "resolve",
    "trust",
    "write_default",
]

Section = TypeVar("Section", bound=BaseModel)


@dataclass(slots=True)
class Layers:
    """What each layer sets, before the layers are merged."""

    user_path: Path | None
    """The user's own file, if it was read."""
    user: FileContents
    project_path: Path | None
    """The project's file, if it was read: it exists, and is trusted."""
    project: FileContents
    overrides: list[FileContents]
    """The environment, then the flags."""
    warnings: list[str] = field(default_factory=list[str])


def read_layers(
    *, cwd: Path | None = None, environ: Mapping[str, str] | None = None, flags: Overrides | None = None
) -> Layers:
    """Read every layer that exists; see ``load_settings``."""
    environ = os.environ if environ is None else environ
    flags = flags or Overrides()
    warnings = find_misspelt_variables(environ)
    user_path, user = _user(environ, flags, warnings)
    project_path, project = _project(cwd, user_path, environ, warnings)
    return Layers(user_path, user, project_path, project, override_layers(environ, flags), warnings)


def load_settings(
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Overrides | None = None,
) -> Settings:
    """Read every layer that exists. Changes nothing outside of the process.

    Raises:
        ConfigError: a file, a variable or a flag is invalid. An untrusted project file is not read, so it
            raises nothing.
    """
    environ = os.environ if environ is None else environ
    flags = flags or Overrides()
    return merge_layers(read_layers(cwd=cwd, environ=environ, flags=flags), environ, flags)


def merge_layers(layers: Layers, environ: Mapping[str, str], flags: Overrides | None = None) -> Settings:
    """Return the settings of the layers; ``environ`` and ``flags`` name the default target."""
    user, project = layers.user, layers.project
    default, origin = _default(flags or Overrides(), environ, layers.project_path, project, layers.user_path, user)
    spoken = layers.overrides
    sections: dict[str, Any] = {each.name: getattr(user, each.name) for each in fields(Sections)}
    sections |= {
        "groups": {**project.groups, **user.groups},
        "limits": _merge_sections(LimitSettings, [user.limits, project.limits, *(layer.limits for layer in spoken)]),
        "audit": _merge_sections(AuditSettings, [user.audit, *(layer.audit for layer in spoken)]),
        "log": _merge_sections(LogSettings, [user.log, *(layer.log for layer in spoken)]),
    }
    return Settings(
        profiles=_profiles(project, user, layers.warnings),
        default=default,
        default_origin=origin,
        files=tuple(path for path in (layers.project_path, layers.user_path) if path),
        warnings=tuple(layers.warnings),
        **sections,
    )


def resolve(text: str | None, settings: Settings) -> Target:
    """Return the target that ``text`` names, or the default one.

    Raises:
        ConfigError: there is no such target, or its profile is invalid.
        Unsupported: its type is known, but not part of this version.
    """
    if text is not None:
        return parse_target(text, settings.profiles)
    try:
        return parse_target(settings.default, settings.profiles)
    except ConfigError as error:
        raise prefix_error(f"default target ({settings.default_origin})", error) from error


def check(settings: Settings) -> list[str]:
    """Return the problems of the profiles, the default target and the hooks, one line each."""
    problems: list[str] = []
    if settings.hooks:
        from hermes_exec.observe.hooks import find_hooks

        try:
            find_hooks(settings.hooks)
        except ConfigError as error:
            problems += str(error).splitlines()
    for name in [*settings.profiles, None]:
        try:
            resolve(name, settings)
        except HermesError as error:
            problems += str(error).splitlines()
    return list(dict.fromkeys(problems))


def _user(environ: Mapping[str, str], flags: Overrides, warnings: list[str]) -> tuple[Path | None, FileContents]:
    named = flags.config or (Path(environ[f"{PREFIX}CONFIG"]) if environ.get(f"{PREFIX}CONFIG") else None)
    path = named.expanduser().absolute() if named else user_file(environ)
    if named is None and not may_exist(path):
        return None, FileContents()
    content = read_regular(path)
    if path.stat().st_mode & 0o002:
        command = f"chmod o-w {shlex.quote(str(path))}"
        warnings.append(
            f"{to_printable(path)} can be changed by everybody on this machine. Try: {to_printable(command)}"
        )
    return path, parse_file(content, path, Origin("user", str(path)))


def _project(
    cwd: Path | None, user_path: Path | None, environ: Mapping[str, str], warnings: list[str]
) -> tuple[Path | None, FileContents]:
    try:
        path = find_project_file(cwd or Path.cwd())
    except FileNotFoundError:  # the working directory was removed, so there is no project
        path = None
    if path is None or (user_path is not None and path.resolve() == user_path.resolve()):
        return None, FileContents()
    try:
        content = read_regular(path)
        verdict = read_trust(path, content, environ)
    except ConfigError as error:
        why = str(error).removeprefix(f"{to_printable(path)}: ")
        warnings.append(f"{to_printable(path)} is ignored: {why}")
        return None, FileContents()
    if verdict is not Trust.TRUSTED:
        command = f"hermes-exec profile trust {shlex.quote(str(path))}"
        warnings.append(f"{to_printable(path)} is ignored: {verdict.value}. Try: read it, then {to_printable(command)}")
        return None, FileContents()
    return path, parse_file(content, path, Origin("project", str(path)))


def _default(
    flags: Overrides,
    environ: Mapping[str, str],
    project_path: Path | None,
    project: FileContents,
    user_path: Path | None,
    user: FileContents,
) -> tuple[str, Origin]:
    layers: Sequence[tuple[str | None, Origin]] = (
        (flags.on, Origin("flag", "--on")),
        (environ.get(f"{PREFIX}ON"), Origin("environment", f"{PREFIX}ON")),
        (project.default, Origin("project", str(project_path))),
        (user.default, Origin("user", str(user_path))),
    )
    return next(((text, origin) for text, origin in layers if text), ("local", BUILT_IN))


def _profiles(project: FileContents, user: FileContents, warnings: list[str]) -> Profiles:
    entries = {"local": ProfileEntry({"type": "local"}, BUILT_IN), **project.entries, **user.entries}
    for name in sorted(project.entries.keys() & user.entries.keys()):
        theirs, ours = project.entries[name].origin, user.entries[name].origin
        warnings.append(f"profile {name!r} of {theirs} is ignored: {ours} has one. Try: rename one of them")
    return Profiles(entries)


def _merge_sections(model: type[Section], layers: Sequence[Section]) -> Section:
    """Merge sections, the weakest layer first; a layer counts for the keys that it sets."""
    values = {key: getattr(layer, key) for layer in layers for key in layer.model_fields_set}
    return model.model_validate(values) if values else model.model_construct()
