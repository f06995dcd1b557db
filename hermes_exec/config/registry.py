"""The registry of types: the profile model and the backend of each.

The types that ship with this project are a table in this module, so finding one reads no metadata of installed
distributions, and no plugin can take its name. Every other type is an entry point of the groups
``hermes_exec.profiles`` and ``hermes_exec.backends``.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.plugins import find_plugins, load_class, load_entry_point, own_entry_points
from hermes_exec.config.type_names import ALIASES, resolve_alias
from hermes_exec.errors import ConfigError, PlaceUnavailable, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.metadata import EntryPoint

    from hermes_exec.backend import Backend
    from hermes_exec.config.profile import Profile

PROFILES = "hermes_exec.profiles"
BACKENDS = "hermes_exec.backends"


@dataclass(frozen=True, slots=True)
class BuiltInType:
    """The location of a built-in type, as ``module:name``, and the extra that installs its SDK."""

    profile: str
    backend: str
    extra: str = ""


BUILT_INS = {
    "local": BuiltInType("hermes_exec_backends.profiles.local:LocalProfile", "hermes_exec_backends.local:LocalBackend"),
    "docker": BuiltInType(
        "hermes_exec_backends.profiles.docker:DockerProfile",
        "hermes_exec_backends.docker:DockerBackend",
        extra="docker",
    ),
    "ssh": BuiltInType(
        "hermes_exec_backends.profiles.ssh:SshProfile", "hermes_exec_backends.ssh:SshBackend", extra="ssh"
    ),
    "singularity": BuiltInType(
        "hermes_exec_backends.profiles.singularity:SingularityProfile",
        "hermes_exec_backends.singularity:SingularityBackend",
        extra="singularity",
    ),
    "bubblewrap": BuiltInType(
        "hermes_exec_backends.profiles.bubblewrap:BubblewrapProfile",
        "hermes_exec_backends.bubblewrap:BubblewrapBackend",
    ),
    "modal": BuiltInType(
        "hermes_exec_backends.profiles.modal:ModalProfile",
        "hermes_exec_backends.modal:ModalBackend",
        extra="modal",
    ),
    "daytona": BuiltInType(
        "hermes_exec_backends.profiles.daytona:DaytonaProfile",
        "hermes_exec_backends.daytona:DaytonaBackend",
        extra="daytona",
    ),
    "slurm": BuiltInType("hermes_exec_backends.profiles.slurm:SlurmProfile", "hermes_exec_backends.slurm:SlurmBackend"),
}
CONFINEMENT = "hermes_exec.confinement"
"""The group whose entry point ``policies`` is the function that ``confinement_of`` calls."""


def find_profile_model(type_name: str) -> type[Profile]:
    """Return the model that validates profiles of this type.

    Raises:
        ConfigError: there is no such type; the message names the one that is most like it.
        Unsupported: the type is built in, but not part of this version.
        PlaceUnavailable: a plugin has the type, and cannot be loaded.
    """
    from hermes_exec.config.profile import Profile

    return cast("type[Profile]", _find(type_name, PROFILES, Profile))


def find_backend_class(type_name: str) -> type[Backend]:
    """Return the backend class of this type; imports its module.

    Raises:
        ConfigError: there is no such type; the message names the one that is most like it.
        Unsupported: the type is known, but this version has no backend for it.
        MissingExtra: its SDK is not installed.
        PlaceUnavailable: its SDK has another version than we need, or a plugin cannot be loaded.
    """
    from hermes_exec.backend import Backend

    return cast("type[Backend]", _find(type_name, BACKENDS, Backend))


def find_confinement(policy: str, **options: Any) -> Any:
    """Return the ``Confinement`` that a sandbox on this machine needs for the named policy, and the policy's limits.

    Policies import the backends that enforce them, so a backend finds them through the entry point ``policies`` of the
    group ``hermes_exec.confinement``. ``options`` are those of ``hermes_exec_policies.confinement.confinement``.

    Raises:
        ConfigError: there is no such policy.
        Unsupported: one of its rules cannot be enforced here, or no distribution registers policies.
        PlaceUnavailable: the registered policies cannot be loaded.
    """
    name = "policies"
    point = own_entry_points(CONFINEMENT).get(name) or find_plugins(CONFINEMENT, is_reserved=is_built_in).get(name)
    if point is None:
        raise Unsupported(
            f"the policy {policy!r} cannot be enforced: no distribution registers {CONFINEMENT!r}",
            remedy="pip install --force-reinstall hermes-exec",
        )
    confine = cast("Callable[..., Any]", load_entry_point(point))
    return confine(policy, **options)


def list_types() -> list[str]:
    """Return every type that a profile can have, sorted, without aliases. Reads all distributions' metadata.

    Raises:
        ConfigError: a plugin claims a name that is taken.
    """
    return sorted({*BUILT_INS, *_plugins(PROFILES)})


def is_built_in(type_name: str) -> bool:
    """Return whether the name is built in, so that no plugin can have it. Reads no metadata."""
    return resolve_alias(type_name) in BUILT_INS


def explain_missing_sdk(type_name: str, error: ImportError) -> Exception:
    """Return the error for a target whose SDK cannot be imported; ``error`` itself if the cause is a module of ours."""
    from hermes_exec.extras import explain_import_error, install_command, is_installed, missing_extra

    if (error.name or "").startswith("hermes_exec"):
        return error
    if known := explain_import_error(error):
        return known
    extra = BUILT_INS[type_name].extra if type_name in BUILT_INS else ""
    if not extra:
        return PlaceUnavailable(f"{type_name}: its code could not be loaded: {error}", remedy="install it again")
    if isinstance(error, ModuleNotFoundError) and error.name and not is_installed(error.name.partition(".")[0]):
        return missing_extra(extra, error.name, type_name)
    remedy = install_command(extra, upgrade=True)
    return PlaceUnavailable(f"{type_name}: its SDK does not fit: {error}", remedy=remedy)


def suggest_name(word: str, known: Iterable[str], before: str) -> str:
    """Return ``before`` and the known word that ``word`` may be a misspelling of; empty where none is like it."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"{before} {close[0]!r}" if close else ""


def _find(type_name: str, group: str, base: type[object]) -> object:
    name = resolve_alias(type_name)
    if name in BUILT_INS:
        return _load_built_in(name, group)
    plugin = _plugins(group).get(name)
    if plugin is not None:
        return load_class(plugin, base)
    if group == BACKENDS and name in _plugins(PROFILES):
        raise Unsupported(f"{name}: the plugin describes such targets, but has no backend for them")
    near = suggest_name(name, [*list_types(), *ALIASES], "; the nearest known one is")
    if name == "podman":
        near = "; its containers are of the type 'docker', which finds Podman's socket"
    raise ConfigError(f"unknown type {type_name!r}{near}", remedy=", ".join(list_types()))


def _load_built_in(name: str, group: str) -> object:
    row = BUILT_INS[name]
    path = row.profile if group == PROFILES else row.backend
    module_name, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name in {
            module_name,
            module_name.partition(".")[0],
        }:
            raise _not_in_this_version(name) from error
        raise explain_missing_sdk(name, error) from error


def _not_in_this_version(name: str) -> Unsupported:
    return Unsupported(
        f"{name}: a known type, but this version has no backend for it",
        remedy="pip install --upgrade hermes-exec",
    )


def _plugins(group: str) -> dict[str, EntryPoint]:
    return find_plugins(group, is_reserved=is_built_in)
