"""Entry points: how other distributions add backends, profiles, commands, tools, hooks and confinements.

Reading the metadata of installed distributions costs milliseconds for each of them, so callers look among the names
that ship with this project first.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from typing import TYPE_CHECKING, TypeVar

from hermes_exec.errors import ConfigError, PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.metadata import EntryPoint

T = TypeVar("T")

OUR_DISTRIBUTION = "hermes-exec"


def own_entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of ``group`` that this distribution declares, by name.

    The metadata of other distributions is not read.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        points = distribution(OUR_DISTRIBUTION).entry_points
    except PackageNotFoundError:
        return {}
    return {point.name: point for point in points if point.group == group}


def own_values(group: str) -> dict[str, str]:
    """Return ``module:attribute`` of each entry point of ``group`` that this distribution declares, by name.

    Reads the one file: importing ``importlib.metadata`` takes longer than a short command.
    """
    if text := _read_own_file(tuple(sys.path)):
        return _parse_group(text, group)
    return {name: point.value for name, point in own_entry_points(group).items()}  # installed in another form


@functools.lru_cache(maxsize=1)
def _read_own_file(_: tuple[str, ...]) -> str:
    """Return this distribution's ``entry_points.txt`` in the folders of ``sys.path``; empty if it is not there."""
    for path in _entry_point_files():
        if _is_ours(path):
            with open(path, encoding="utf-8") as file:  # noqa: PTH123  pathlib takes time to import
                return file.read()
    return ""


def has_plugins(group: str) -> bool:
    """Return whether another distribution may declare entry points of ``group``.

    Reads the files without ``importlib.metadata``; True where a distribution may be in a form other than a folder.
    """
    section = f"[{group}]".encode()
    for path in _entry_point_files():
        if not _is_ours(path):
            with open(path, "rb") as file:  # noqa: PTH123  the same
                if section in file.read():
                    return True
    return any(os.path.isfile(entry) for entry in sys.path)  # noqa: PTH113  the same


def _entry_point_files() -> Iterator[str]:
    """Yield the paths of the ``entry_points.txt`` of distributions in the folders of ``sys.path``."""
    for folder in sys.path:
        with contextlib.suppress(OSError):  # an entry that is not a folder
            for name in os.listdir(folder or "."):  # noqa: PTH208  the same
                if name.endswith((".dist-info", ".egg-info")):
                    path = f"{folder or '.'}/{name}/entry_points.txt"
                    if os.path.isfile(path):  # noqa: PTH113  the same
                        yield path


def _is_ours(path: str) -> bool:
    return path.split("/")[-2].startswith("hermes_exec-")


def _parse_group(text: str, group: str) -> dict[str, str]:
    """Return the rows of one section of an ``entry_points.txt``."""
    values: dict[str, str] = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and "=" in line:
            name, _, value = line.partition("=")
            values[name.strip()] = value.strip()
    return values


def load_value(value: str) -> object:
    """Import the module of ``module:attribute`` and return the attribute.

    Raises:
        ImportError: there is no such module.
        AttributeError: the module has no such attribute.
    """
    from importlib import import_module

    module, _, attribute = value.partition(":")
    loaded: object = getattr(import_module(module), attribute)
    return loaded


def find_plugins(group: str, *, is_reserved: Callable[[str], bool]) -> dict[str, EntryPoint]:
    """Return the entry points of ``group`` that other distributions declare, by name.

    Raises:
        ConfigError: a distribution uses a reserved name, or two distributions use the same name.
    """
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        distribution = find_owner(point)
        if distribution == OUR_DISTRIBUTION:
            continue
        if is_reserved(point.name):
            raise ConfigError(
                f"the distribution {distribution!r} offers {point.name!r}, which is a built-in name, and is refused",
                remedy=f"pip uninstall {distribution}",
            )
        other = found.setdefault(point.name, point)
        if find_owner(other) != distribution:
            raise ConfigError(
                f"the distributions {find_owner(other)!r} and {distribution!r} both offer {point.name!r}",
                remedy="uninstall one of them",
            )
    return found


def find_owner(point: EntryPoint) -> str:
    """Return the normalized name of the distribution that declares the entry point (PEP 503)."""
    name = point.dist.name if point.dist is not None else "unknown"
    return re.sub(r"[-_.]+", "-", name).lower()


def load_entry_point(point: EntryPoint) -> object:
    """Load the object of an entry point.

    Raises:
        PlaceUnavailable: its module cannot be imported, or has no such attribute.
    """
    try:
        loaded: object = point.load()
    except Exception as error:  # a plugin's code may raise anything
        raise PlaceUnavailable(f"{_describe(point)} cannot be loaded: {error}") from error
    return loaded


def load_class(point: EntryPoint, base: type[T]) -> type[T]:
    """Load the class of an entry point; it must be a subclass of ``base``.

    Raises:
        PlaceUnavailable: it cannot be loaded, or is not a subclass of ``base``.
    """
    loaded = load_entry_point(point)
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PlaceUnavailable(f"{_describe(point)} is not a {base.__name__}")
    return loaded


def _describe(point: EntryPoint) -> str:
    return f"{point.name}: {point.value} of the distribution {find_owner(point)!r}"
