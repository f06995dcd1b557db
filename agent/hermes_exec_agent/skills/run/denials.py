"""Operations that a run's sandbox refused: as the kernel reported them outside, and as the skill reported itself.

Reports from outside count in any case. The skill's own report only adds a clear line to the log.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_backends.sandbox.run import ProgramResult
    from hermes_exec_policies.gate.launch import CallResult
    from hermes_exec_policies.gate.verdict import Finding
    from hermes_exec_policies.model import Policy

SECURITY = "security"
"""The kind of a run that attempted an operation that no skill has a reason for."""
_ERRNO = re.compile(r"\[Errno (\d+)\](?: [^:]*: '([^']*)')?")
_DENIALS = {13: "access was denied", 30: "it is read-only", 1: "it is not permitted"}
"""The three numbers of a denial: by a security module or an owner, by a mount, by a filter of system calls."""
_DATA = "/app/data"


def find_denials(version: Version, policy: Policy, ended: ProgramResult) -> tuple[str, ...]:
    """Describe each refused operation that no skill has a reason for, except those that its modules usually attempt."""
    return tuple(to_line(each.operator) for each in _judge_calls(version, policy, ended))


def find_script_denials(version: Version, policy: Policy, ended: ProgramResult) -> tuple[tuple[str, ...], bool]:
    """Do the same for a script; return also whether it tried to reach a host, which an honest script may do.

    Servers look up their own names, so a lookup alone counts only if the script fails.
    """
    from hermes_exec_policies.gate.behavior_rules import DNS_PORT, NETWORK, find_connection

    found = _judge_calls(version, policy, ended)
    others = tuple(to_line(each.operator) for each in found if each.code != NETWORK)
    if policy.network.access == "hosts":
        return others, False
    ports = {hit[1] for act in ended.acts if (hit := find_connection(act))}
    return others, bool(ports - {DNS_PORT}) or (bool(ports) and ended.exit.code != 0)


def is_server_refused(policy: Policy, ended: ProgramResult) -> bool:
    """Whether a script with granted hosts tried to listen on a port; Landlock refuses all but the proxy's."""
    from hermes_exec_policies.gate.behavior_rules import find_server
    from hermes_exec_policies.render.landlock import BRIDGE

    if policy.network.access != "hosts":
        return False
    return any(hit[1] != BRIDGE for act in ended.acts if (hit := find_server(act)))


def _judge_calls(version: Version, policy: Policy, ended: ProgramResult) -> list[Finding]:
    if not ended.acts:
        return []
    from hermes_exec_policies.gate import behavior_rules

    evidence: dict[str, Any] = version.evidence.get("evidence") or {}
    usual = behavior_rules.load_baseline(evidence.get("usual", ()))
    found = behavior_rules.judge_calls(ended.acts, usual, hosts=policy.network.access == "hosts")
    return [each for each in found if each.kind == SECURITY]


def describe_denial(called: CallResult) -> str:
    """Describe the denial that a call reports as its failure; empty if it reports none."""
    found = _ERRNO.search(called.message)
    number = int(found[1]) if found else 0
    if found is None or number not in _DENIALS:
        return ""
    path = found[2] or ""
    where = f"; a run writes below {_DATA} alone" if path and not f"{path}/".startswith(f"{_DATA}/") else ""
    return f"Sandbox Jailbreak: {describe_failure(called)} ({_DENIALS[number]}{where})"


def describe_failure(called: CallResult) -> str:
    """Describe why a call failed, in one line; empty if it did not."""
    text = " ".join(called.message.split())
    return to_line(f"{called.error}: {text}" if text else called.error)


def to_line(text: str) -> str:
    """Return the text as one line that moves no cursor."""
    return "".join(each if each.isprintable() else "?" for each in text)
