"""Describe the rules of a policy, and what enforces each of them on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.config.values import format_size
from hermes_exec.errors import Unsupported
from hermes_exec_policies.enforcers import Enforcer, list_enforcers
from hermes_exec_policies.folders import shared_paths
from hermes_exec_policies.rule_names import RULES
from hermes_exec_policies.syscalls import all_syscalls
from hermes_exec_policies.values import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hermes_exec_backends.sandbox.host import Machine
    from hermes_exec_policies.model import Policy, Strength

_SIZES = {"memory", "disk", "shared_memory", "file_size", "output", "core", "locked_memory", "message_queues"}
_SECONDS = {"time", "cpu_time"}


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """The state of one policy rule on one machine."""

    rule: str
    says: str
    strength: Strength
    held_by: tuple[str, ...]
    """The mechanisms that enforce it here; empty if none does."""
    lacking: tuple[Enforcer, ...]
    """The mechanisms that could enforce it, but are not available here."""
    declared: bool
    """Whether only a vendor's declaration enforces it."""

    @property
    def status(self) -> str:
        """``enforced``, ``declared`` or ``not enforceable``."""
        if not self.held_by:
            return "not enforceable"
        return "declared" if self.declared else "enforced"

    @property
    def refuses(self) -> bool:
        """Whether sandboxes are refused because of it."""
        return not self.held_by and self.strength == "required"

    def facts(self) -> dict[str, Any]:
        """For programs."""
        return {
            "rule": self.rule,
            "says": self.says,
            "strength": self.strength,
            "status": self.status,
            "held_by": list(self.held_by),
            "lacking": [{"means": each.mechanism, "why": each.lacking, "try": each.remedy} for each in self.lacking],
        }


def explain_policy(policy: Policy, place: str, host: Machine) -> list[RuleStatus]:
    """The state of each rule of the policy, in the order of ``RULES``.

    Raises:
        UsageError: no policy can be enforced in that kind of sandbox.
    """
    means = list_enforcers(place, policy, host)
    return [_verdict(rule, says, policy, means.get(rule, [])) for rule, says in describe_rules(policy).items()]


def _verdict(rule: str, says: str, policy: Policy, means: list[Enforcer]) -> RuleStatus:
    there = [each for each in means if not each.lacking]
    # The first available enforcer holds a limit; all other rules are enforced by each available mechanism.
    held = there[:1] if rule.startswith("limits.") else there
    return RuleStatus(
        rule=rule,
        says=says,
        strength=policy.strength(rule),
        held_by=tuple(each.mechanism for each in held),
        lacking=tuple(each for each in means if each.lacking),
        declared=bool(held) and all(each.declared for each in held),
    )


def refuse_unless_enforceable(policy: Policy, place: str, host: Machine) -> list[RuleStatus]:
    """Return the state of each rule if every required rule can be enforced.

    Raises:
        Unsupported: a required rule cannot be enforced; names the rule, the reason and a remedy.
    """
    verdicts = explain_policy(policy, place, host)
    bad = [verdict for verdict in verdicts if verdict.refuses]
    if bad:
        first = bad[0]
        why = (
            "; ".join(f"{each.mechanism}: {each.lacking}" for each in first.lacking) or "no mechanism enforces it there"
        )
        names = ", ".join(verdict.rule for verdict in bad)
        remedies = [each.remedy for each in first.lacking if each.remedy]
        raise Unsupported(
            f"{place}: the policy {policy.name} cannot be enforced here: {names} ({why})",
            remedy=remedies[0] if remedies else f"hermes-exec policy explain {policy.name} --in {place}",
        )
    return verdicts


def describe_rules(policy: Policy) -> dict[str, str]:
    """A sentence for each rule of a policy, in the order of ``RULES``."""
    return {
        rule: _SENTENCES[rule](policy) if rule in _SENTENCES else _limit(policy, rule)
        for rule in RULES
        if has_rule(policy, rule)
    }


def has_rule(policy: Policy, rule: str) -> bool:
    """Whether a policy has a rule."""
    if rule.startswith("limits."):
        return getattr(policy.limits, rule.removeprefix("limits.")) is not None
    return _APPLIES[rule](policy)


def _limit(policy: Policy, rule: str) -> str:
    name = rule.removeprefix("limits.")
    value = getattr(policy.limits, name)
    shown = format_size(value) if name in _SIZES else f"{value:g}" + (" s" if name in _SECONDS else "")
    beyond = shared_paths(policy)[1] if name in {"disk", "inodes"} else []
    except_ = f", except in {', '.join(beyond)}, which is a folder of the machine without a limit" if beyond else ""
    return f"{RULES[rule]}: at most {shown}{except_}"


def _join(words: tuple[str, ...]) -> str:
    return ", ".join(words) or "nothing"


_SENTENCES: Mapping[str, Callable[[Policy], str]] = {
    "files.write": lambda p: f"only {_join(p.files.write)} can be written, and {_join(p.files.scratch)} temporarily",
    "files.hidden": lambda p: f"only {_join((*p.files.run, *p.files.read, *p.writable))} can be read",
    "files.run": lambda _: "no program can be started from a writable folder",
    "files.devices": lambda p: f"the only devices are {_join(p.files.devices)}",
    "files.masked": lambda _: "files in /proc about the machine and other users' keys are empty",
    "network.isolated": lambda _: "no network: neither other hosts nor this machine's ports can be reached",
    "network.hosts": lambda p: f"only {_join(p.network.hosts)} can be reached, through a proxy",
    "network.sockets": lambda p: f"only sockets of the families {_join(p.network.sockets)} can be created",
    "user.ordinary": lambda _: "it runs as an ordinary user, never as root",
    "user.unique": lambda _: "it runs as a user without other processes",
    "privileges.capabilities": lambda p: f"capabilities: {_join(p.privileges.capabilities)}",
    "privileges.none_gained": lambda _: "no program, set-user-ID or not, gains privileges",
    "privileges.namespaces": lambda _: "it can create no namespaces",
    "processes.hidden": lambda _: "outside processes can be neither seen nor signalled",
    "processes.ipc": lambda _: "outside shared memory, message queues and abstract sockets cannot be reached",
    "processes.traced": lambda _: "no process can trace another one or read its memory by a system call",
    "processes.terminal": lambda _: "it has no access to an outside terminal",
    "processes.end_together": lambda _: "every process ends with the sandbox",
    "environment.cleared": lambda p: f"the only variables are {_join((*p.environment.set, *p.environment.keep))}",
    "syscalls.filtered": lambda p: f"{len(p.calls)} of {len(all_syscalls())} system calls are allowed",
    "syscalls.native": lambda _: "32-bit system calls kill the process",
    "syscalls.writable_code": lambda _: "no memory is both writable and executable",
    "syscalls.set_id_files": lambda _: "no set-user-ID or set-group-ID file can be created",
    "lsm": lambda _: "AppArmor or Landlock enforces the rules for files a second time",
}

_APPLIES: Mapping[str, Callable[[Policy], bool]] = {
    "files.write": lambda p: p.files.root == "read-only",
    "files.hidden": lambda p: p.files.hidden,
    "files.run": lambda p: not p.files.run_written,
    "files.devices": lambda p: p.files.hidden,
    "files.masked": lambda p: p.processes.hidden,
    "network.isolated": lambda p: p.network.access == "none",
    "network.hosts": lambda p: p.network.access == "hosts",
    "network.sockets": lambda p: bool(p.network.sockets),
    "user.ordinary": lambda p: p.user.ordinary,
    "user.unique": lambda p: p.user.unique,
    "privileges.capabilities": lambda p: EVERY not in p.privileges.capabilities,
    "privileges.none_gained": lambda p: p.privileges.none_gained,
    "privileges.namespaces": lambda p: not p.privileges.namespaces,
    "processes.hidden": lambda p: p.processes.hidden,
    "processes.ipc": lambda p: p.processes.ipc == "private",
    "processes.traced": lambda p: not p.processes.traced,
    "processes.terminal": lambda p: not p.processes.terminal,
    "processes.end_together": lambda p: p.processes.end_together,
    "environment.cleared": lambda p: p.environment.cleared,
    "syscalls.filtered": lambda p: p.syscalls.filtered,
    "syscalls.native": lambda p: p.syscalls.filtered,
    "syscalls.writable_code": lambda p: not p.syscalls.writable_code,
    "syscalls.set_id_files": lambda p: not p.syscalls.set_id_files,
    "lsm": lambda p: p.lsm,
}
