"""Build the system call filter of a policy, the source of the JSON for containers and of the BPF program.

It lists the allowed calls, with conditions on arguments; all other calls are refused with EPERM. A filter cannot read
memory that arguments point to, so a call whose effect depends on such memory is refused completely.
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
"""All CLONE_NEW* flags of clone(2)."""
_WRITE, _EXEC = 2, 4
_SHARED, _ANONYMOUS = 1, 32
"""Flags of mmap. Together they map memory of no process and no file, which stays allocated after munmap and which only
a control group counts."""
_SHM_EXEC = 0o100000
_SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE, with which open uses its mode."""
_NOT_NOTIFY = ((0, 0xFFFFFC00), (1024, 0xFFFFFFFE), (1027, 0xFFFFFFFF), (1028, 0xFFFFFFFC), (1032, 0xFFFFFFF8))
"""The commands of fcntl below 1040, of which the kernel reads 32 bits, except F_NOTIFY."""
_PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, Linux with 32-bit ``uname``, both with the version of an old kernel, and the query."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition: an argument, or its bits in ``mask``, equals ``value``. All 64 bits are compared."""

    index: int
    value: int
    mask: int | None = None

    def holds(self, arguments: tuple[int, ...]) -> bool:
        """Whether the condition holds for these arguments."""
        found = arguments[self.index]
        return (found if self.mask is None else found & self.mask) == self.value


@dataclass(frozen=True, slots=True)
class FilterRule:
    """Allow calls, or refuse them with ``errno``, if all conditions of ``when`` hold."""

    names: tuple[str, ...]
    errno: int = 0
    when: tuple[Compare, ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """Consistent rules; calls that no rule matches are refused with EPERM."""

    rules: tuple[FilterRule, ...]

    def answer(self, name: str, arguments: tuple[int, ...]) -> int:
        """The error number of a call, 0 if it is allowed; each rendering must agree with it."""
        for rule in self.rules:
            if name in rule.names and all(condition.holds(arguments) for condition in rule.when):
                return rule.errno
        return EPERM


def build_filter(policy: Policy, *, counted: bool = True) -> Filter | None:
    """Build the filter of a policy; None if it filters nothing.

    ``counted`` is whether a control group counts the memory of a sandbox. Otherwise allocating shared anonymous memory
    fails with ENOMEM.
    """
    if not policy.syscalls.filtered:
        return None
    conditions = _conditions(policy)
    if not counted:
        conditions = {**conditions, "mmap": _without_shared_memory(conditions.get("mmap", [()]))}
    absent = _absent_calls(policy)
    plain = tuple(sorted(policy.calls - conditions.keys() - absent))
    rules = [FilterRule(plain)]
    for name in sorted(policy.calls & conditions.keys()):
        rules += [FilterRule((name,), when=when) for when in conditions[name]]
    rules += [FilterRule(tuple(sorted(absent & policy.calls)), errno=ENOSYS)] if absent & policy.calls else []
    if not counted:
        both = _SHARED | _ANONYMOUS
        rules.append(FilterRule(("mmap",), errno=ENOMEM, when=(Compare(3, both, both),)))
    return Filter(tuple(rules))


def _without_shared_memory(forms: list[tuple[Compare, ...]]) -> list[tuple[Compare, ...]]:
    """Conditions of mmap that exclude shared anonymous memory."""
    kinds = (0, _SHARED, _ANONYMOUS)
    return [(*form, Compare(3, kind, _SHARED | _ANONYMOUS)) for form in forms for kind in kinds]


def _absent_calls(policy: Policy) -> frozenset[str]:
    """Calls to refuse with ENOSYS, so that programs fall back to calls that can be filtered."""
    names = set[str]() if policy.privileges.namespaces else {"clone3"}
    if not policy.syscalls.set_id_files:
        names.add("openat2")
    return frozenset(names)


def _conditions(policy: Policy) -> Mapping[str, list[tuple[Compare, ...]]]:
    """Calls that are allowed with conditions: any of the listed forms, each with all its conditions."""
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
