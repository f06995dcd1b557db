"""The system calls that there are, in groups, from ``syscalls.toml``: the one list that policies speak of."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from hermes_exec.config.check import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROUP = "@"
"""What the name of a group begins with, where a policy names one."""


@dataclass(frozen=True, slots=True)
class Group:
    """Calls that are allowed or removed together."""

    name: str
    about: str
    usual: bool
    """Whether a container engine's default lets an ordinary process make them."""
    names: tuple[str, ...]


@cache
def groups() -> Mapping[str, Group]:
    """Every group by its name."""
    table = tomllib.loads((files("hermes_exec_policies") / "syscalls.toml").read_text(encoding="utf-8"))
    return {name: Group(name, group["about"], group["usual"], tuple(group["names"])) for name, group in table.items()}


@cache
def known() -> frozenset[str]:
    """Every call that exists."""
    return frozenset(name for group in groups().values() for name in group.names)


@cache
def usual() -> frozenset[str]:
    """The calls that every policy starts from."""
    return frozenset(name for group in groups().values() if group.usual for name in group.names)


def spelt(word: str) -> str:
    """``word`` itself, if it names a call or, after an ``@``, a group.

    Raises:
        ValueError: it names neither; says the nearest that exists.
    """
    name = word.removeprefix(GROUP)
    there = groups() if word.startswith(GROUP) else known()
    if name in there:
        return word
    kind, mark = ("group of system calls", GROUP) if word.startswith(GROUP) else ("system call", "")
    raise ValueError(f"no {kind} is called {word!r}; the nearest known one is {mark + nearest(name, sorted(there))!r}")


def expanded(words: Iterable[str]) -> frozenset[str]:
    """The calls that ``words`` name, one by one or by their groups."""
    return frozenset(
        name
        for word in words
        for name in (groups()[word.removeprefix(GROUP)].names if word.startswith(GROUP) else (word,))
    )
