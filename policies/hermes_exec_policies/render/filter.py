"""The filter of system calls that a policy means, before it becomes a container's JSON or a kernel's program.

It is a list of what is allowed, with conditions on arguments; everything else is refused with EPERM. What points
to memory cannot be looked at by such a filter, so a call whose meaning lies there is refused whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_policies.values import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_policies.model import Policy

EPERM = 1
ENOMEM = 12
ENOSYS = 38
_NAMESPACES = 0x7E020000
"""Every CLONE_NEW* that clone(2) takes."""
_WRITE, _EXEC = 2, 4
_SHARED, _ANONYMOUS = 1, 32
"""Of mmap's flags. Both: memory of no process and no file, which stays after it was unmapped, and which only a control
group counts."""
_SHM_EXEC = 0o100000
_SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE, which make the mode of an open count."""
_NOT_NOTIFY = ((0, 0xFFFFFC00), (1024, 0xFFFFFFFE), (1027, 0xFFFFFFFF), (1028, 0xFFFFFFFC), (1032, 0xFFFFFFF8))
"""Commands of fcntl below 1040, of which the kernel looks at 32 bits, but F_NOTIFY: be told of changes of a folder."""
_PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, Linux with 32-bit ``uname``, each with an old kernel's number, and a question."""


@dataclass(frozen=True, slots=True)
class Compare:
    """One argument, or the bits of ``mask`` in it, is ``value``. All 64 bits count, else high ones slip past."""

    index: int
    value: int
    mask: int | None = None

    def holds(self, arguments: tuple[int, ...]) -> bool:
        """Whether it does for a call with these arguments."""
        found = arguments[self.index]
        return (found if self.mask is None else found & self.mask) == self.value


@dataclass(frozen=True, slots=True)
class Rule:
    """Calls that are allowed, or refused with ``errno``, when all of ``when`` holds."""

    names: tuple[str, ...]
    errno: int = 0
    when: tuple[Compare, ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """Rules, no two of which contradict each other; what none of them speaks of is refused with EPERM."""

    rules: tuple[Rule, ...]

    def answer(self, name: str, arguments: tuple[int, ...]) -> int:
        """The error number that a call ends with, 0 if it is allowed: what every rendering has to agree with."""
        for rule in self.rules:
            if name in rule.names and all(condition.holds(arguments) for condition in rule.when):
                return rule.errno
        return EPERM


def filter_of(policy: Policy, *, counted: bool = True) -> Filter | None:
    """The filter of a policy; None where it filters nothing.

    ``counted`` says whether a control group counts the memory of a sandbox. Where none does, memory that is of no
    process cannot be had, as if there were none left.
    """
    if not policy.syscalls.filtered:
        return None
    conditions = _conditions(policy)
    if not counted:
        conditions = {**conditions, "mmap": _without_shared_memory(conditions.get("mmap", [()]))}
    absent = _absent_calls(policy)
    plain = tuple(sorted(policy.calls - conditions.keys() - absent))
    rules = [Rule(plain)]
    for name in sorted(policy.calls & conditions.keys()):
        rules += [Rule((name,), when=when) for when in conditions[name]]
    rules += [Rule(tuple(sorted(absent & policy.calls)), errno=ENOSYS)] if absent & policy.calls else []
    if not counted:
        both = _SHARED | _ANONYMOUS
        rules.append(Rule(("mmap",), errno=ENOMEM, when=(Compare(3, both, both),)))
    return Filter(tuple(rules))


def _without_shared_memory(forms: list[tuple[Compare, ...]]) -> list[tuple[Compare, ...]]:
    """Forms of mmap without memory that is shared and of no file."""
    kinds = (0, _SHARED, _ANONYMOUS)
    return [(*form, Compare(3, kind, _SHARED | _ANONYMOUS)) for form in forms for kind in kinds]


def _absent_calls(policy: Policy) -> frozenset[str]:
    """Calls that look as if this kernel did not have them, so that programs fall back to what can be filtered."""
    names = set[str]() if policy.privileges.namespaces else {"clone3"}
    if not policy.syscalls.set_id_files:
        names.add("openat2")
    return frozenset(names)


def _conditions(policy: Policy) -> Mapping[str, list[tuple[Compare, ...]]]:
    """Calls that are allowed in certain forms only: each form is a list of what must hold at once."""
    found: dict[str, list[tuple[Compare, ...]]] = {
        "personality": [(Compare(0, value),) for value in _PERSONALITIES],
    }
    if "inotify_add_watch" not in policy.calls:
        found["fcntl"] = [(Compare(1, value, mask),) for value, mask in _NOT_NOTIFY]
    if not policy.privileges.namespaces:
        found["clone"] = [(Compare(0, 0, _NAMESPACES),)]
    if policy.network.sockets:
        families = sorted(FAMILIES[name] for name in policy.network.sockets)
        found |= {name: [(Compare(0, family),) for family in families] for name in ("socket", "socketpair")}
    if not policy.syscalls.writable_code:
        found["mmap"] = [(Compare(2, protection, _WRITE | _EXEC),) for protection in (0, _WRITE, _EXEC)]
        found |= {name: [(Compare(2, 0, _EXEC),)] for name in ("mprotect", "pkey_mprotect")}
        found["shmat"] = [(Compare(2, 0, _SHM_EXEC),)]
    if not policy.syscalls.set_id_files:
        modes = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
        found |= {name: [(Compare(index, 0, _SET_ID),)] for name, index in modes.items()}
        for name, flags in {"open": 1, "openat": 2}.items():
            found[name] = [(Compare(flags, 0, _CREATES),), (Compare(flags + 1, 0, _SET_ID),)]
    return found
