"""Compare two policies: in which of its values does the second one permit more?

A value that is not certainly as strict as before counts as looser, so that a new key, a moved folder or another
variable of the environment is never taken for harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_policies.load import diff_policies
from hermes_exec_policies.values import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hermes_exec_policies.model import Policy

_STRICT = frozenset(
    {
        "files.hidden", "user.ordinary", "user.unique", "privileges.none_gained", "processes.hidden",
        "processes.end_together", "environment.cleared", "syscalls.filtered", "lsm",
    }
)  # fmt: skip
"""Keys that restrict if true."""
_PERMISSIVE = frozenset(
    {
        "files.run_written", "privileges.namespaces", "processes.traced", "processes.terminal",
        "syscalls.writable_code", "syscalls.set_id_files",
    }
)  # fmt: skip
"""Keys that permit if true."""
_RANKS = {
    "files.root": ("read-only", "writable"),
    "network.access": ("none", "hosts", "open"),
    "processes.ipc": ("private", "shared"),
}
"""Values from the strictest on."""


def list_loosened(before: Policy, after: Policy) -> list[tuple[str, object, object]]:
    """Return the keys of which ``after`` may permit more, each with both values; empty if it permits no more."""
    return [(key, old, new) for key, old, new in diff_policies(before, after) if not _is_stricter(key, before, after)]


def _is_stricter(key: str, before: Policy, after: Policy) -> bool:
    """Return whether the value of a key is certainly as strict as before."""
    old, new = _value(key, before), _value(key, after)
    if key in _STRICT:
        return new is True
    if key in _PERMISSIVE:
        return new is False
    if key in _RANKS:
        rank = _RANKS[key].index
        return rank(str(new)) <= rank(str(old))
    if key.startswith("limits."):
        return isinstance(new, int | float) and (not isinstance(old, int | float) or new <= old)
    compare = _COMPARISONS.get(key)
    return compare is not None and compare(before, after)


def _value(key: str, policy: Policy) -> object:
    value: object = policy
    for part in key.split("."):
        value = getattr(value, part, None)
    return value


def _is_part(new: Iterable[str], old: Iterable[str]) -> bool:
    return set(new) <= set(old)


def _is_part_or_all(new: Iterable[str], old: Iterable[str]) -> bool:
    """Compare lists of which an empty one may mean everything."""
    return bool(set(new)) and _is_part(new, old)


def _has_fewer_calls(before: Policy, after: Policy) -> bool:
    return after.calls <= before.calls


_COMPARISONS: Mapping[str, Callable[[Policy, Policy], bool]] = {
    "files.run": lambda one, two: _is_part_or_all(two.files.run, one.files.run),
    "files.read": lambda one, two: _is_part(two.files.read, one.files.read),
    "files.write": lambda one, two: _is_part(two.files.write, one.files.write),
    "files.devices": lambda one, two: _is_part(two.files.devices, one.files.devices),
    "network.hosts": lambda one, two: _is_part(two.network.hosts, one.network.hosts),
    "network.sockets": lambda one, two: _is_part_or_all(two.network.sockets, one.network.sockets),
    "privileges.capabilities": lambda one, two: (
        EVERY in one.privileges.capabilities or _is_part(two.privileges.capabilities, one.privileges.capabilities)
    ),
    "environment.keep": lambda one, two: _is_part(two.environment.keep, one.environment.keep),
    "syscalls.remove": _has_fewer_calls,
    "syscalls.add": _has_fewer_calls,
    "best_effort": lambda one, two: _is_part(two.best_effort, one.best_effort),
}
