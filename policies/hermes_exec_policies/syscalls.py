"""The system calls in groups, read from ``syscalls.toml``, for policies to name."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from hermes_exec.config.check import nearest_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROUP = "@"
"""The prefix of the name of a group in a policy."""


@dataclass(frozen=True, slots=True)
class Group:
    """System calls that are added or removed together."""

    name: str
    about: str
    usual: bool
    """Whether the default filter of container engines allows them to an ordinary process."""
    names: tuple[str, ...]


@cache
def groups() -> Mapping[str, Group]:
    """All groups by name."""
    table = tomllib.loads((files("hermes_exec_policies") / "syscalls.toml").read_text(encoding="utf-8"))
    return {name: Group(name, group["about"], group["usual"], tuple(group["names"])) for name, group in table.items()}


@cache
def all_syscalls() -> frozenset[str]:
    """The names of all system calls."""
    return frozenset(name for group in groups().values() for name in group.names)


@cache
def default_syscalls() -> frozenset[str]:
    """The system calls that a policy allows before its changes."""
    return frozenset(name for group in groups().values() if group.usual for name in group.names)


def check_syscall(word: str) -> str:
    """Return ``word`` if it names a system call or, after an ``@``, a group.

    Raises:
        ValueError: it names neither; names the nearest one.
    """
    name = word.removeprefix(GROUP)
    there = groups() if word.startswith(GROUP) else all_syscalls()
    if name in there:
        return word
    kind, mark = ("group of system calls", GROUP) if word.startswith(GROUP) else ("system call", "")
    raise ValueError(
        f"no {kind} is called {word!r}; the nearest known one is {mark + nearest_name(name, sorted(there))!r}"
    )


def expand_groups(names: Iterable[str]) -> frozenset[str]:
    """Expand the groups among ``names`` to their system calls."""
    return frozenset(
        name
        for word in names
        for name in (groups()[word.removeprefix(GROUP)].names if word.startswith(GROUP) else (word,))
    )
