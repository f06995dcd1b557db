"""Compare a sandbox, inspected from outside before untrusted code runs in it, with its policy.

The attempts prove a probe sandbox; this check is made for each sandbox.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec_backends.sandbox.ready import NAMESPACE_RULES
from hermes_exec_policies.render.bubblewrap import layout
from hermes_exec_policies.values import EVERY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_backends.sandbox import Confinement
    from hermes_exec_backends.sandbox.procfs import ProcessFacts
    from hermes_exec_policies.model import Policy


def find_deviations(policy: Policy, wanted: Confinement, facts: ProcessFacts) -> list[str]:
    """The rules that do not hold, each with the observed state; empty if all hold."""
    found: list[str] = []
    if (wanted.seccomp or wanted.filter_document) and facts.seccomp != 2:
        found.append(f"syscalls.filtered: its mode of seccomp is {facts.seccomp}")
    if policy.privileges.none_gained and not facts.no_new_privs:
        found.append("privileges.none_gained: no_new_privs is not set")
    held = {name: value for name, value in facts.caps.items() if value}
    if EVERY not in policy.privileges.capabilities and not policy.privileges.capabilities and held:
        found.append(f"privileges.capabilities: {', '.join(f'{name} {value:x}' for name, value in held.items())}")
    if policy.user.ordinary and (0 in facts.uids or 0 in facts.gids):
        found.append(f"user.ordinary: its users are {facts.uids}, its groups {facts.gids}")
    if wanted.uid is not None and set(facts.uids) != {wanted.uid}:
        found.append(f"user.unique: its users are {facts.uids}, and {wanted.uid} was asked for")
    if wanted.apparmor and wanted.apparmor not in {facts.label.partition(" (")[0], facts.next_label.partition(" (")[0]}:
        found.append(f"lsm: its label is {facts.label!r}, then {facts.next_label!r}")
    found += [
        f"{NAMESPACE_RULES[name]}: it shares our namespace {name}"
        for name in layout(policy).namespaces
        if (name != "user" or not wanted.filter_document)  # a container engine shares the user namespace of the machine
        and facts.namespaces.get(name) in {None, Path("/proc/self/ns", name).stat().st_ino}
    ]
    return found + _memory(policy, wanted, facts) + _mounts(policy, wanted, facts)


def _memory(policy: Policy, wanted: Confinement, facts: ProcessFacts) -> list[str]:
    """Check that the sandbox has a control group of its own, if that must enforce the memory limit."""
    limited = policy.limits.memory is not None and policy.strength("limits.memory") == "required"
    if not limited or any(name == "as" for name, _, _ in wanted.rlimits):
        return []
    ours = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return ["limits.memory: it is in no control group of its own"] if _group(facts.cgroup) == _group(ours) else []


def _group(lines: Iterable[str]) -> str:
    """The path of the group that counts memory: of version 1, if there is one."""
    paths = dict(line.split(":", 2)[1:] for line in lines)
    return next((path for names, path in paths.items() if "memory" in names.split(",")), paths.get("", ""))


def _mounts(policy: Policy, wanted: Confinement, facts: ProcessFacts) -> list[str]:
    """Compare mount options with the specification; the last mount at each target counts."""
    options = dict(_mount(line) for line in facts.mounts)
    found: list[str] = []
    for folder in wanted.tmpfs:
        has = options.get(folder.target, frozenset())
        needed = {"nosuid", "nodev"} | (set[str]() if folder.executable else {"noexec"})
        if not needed <= has:
            found.append(f"files.run: {folder.target} is mounted with {', '.join(sorted(has)) or 'nothing'}")
    writable = {each.target for each in wanted.tmpfs} | {bind.target for bind in wanted.binds if bind.writable}
    if 0 not in facts.uids:
        writable.add("/dev")  # engines leave it so, and only root can write there
    covered = tuple(f"{path}/" for path in wanted.masked)
    if policy.files.root == "read-only":
        found += [
            f"files.write: {target} can be written"
            for target, has in options.items()
            if "rw" in has and target not in writable and not target.startswith(("/proc", "/dev/", *covered))
        ]
    return found


def _mount(line: str) -> tuple[str, frozenset[str]]:
    fields = line.split()
    return fields[4].encode().decode("unicode_escape"), frozenset(fields[5].split(","))
