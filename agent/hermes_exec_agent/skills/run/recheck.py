"""Compare the first runs of a version with repeats by the judge: a skill that recognizes a check shows a difference.

A repeat runs in a sandbox of its own, as a check does, so it has no effect outside. Skills with hosts or writable
folders could have one, and are not repeated.
"""

from __future__ import annotations

import logging
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.skills.run import preconditions, sandboxes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run.outcome import SkillOutcome
    from hermes_exec_policies.gate.launch import CallResult
    from hermes_exec_policies.model import Policy

_log = logging.getLogger(__name__)
FIRST_RUNS = 10
"""The runs of a version that are compared."""
_LONGEST_S = 10.0
"""The duration above which a run is not repeated, so that a person does not wait twice."""
_CONFIRMATIONS = 6
"""Repeats of each kind after a difference: a result that is random or depends on the time differs among them, too."""
_ERROR = "its result is withheld: it behaves differently in use and in a check"


async def recheck(
    registry: Registry, version: Version, policy: Policy, arguments: Mapping[str, Any], outcome: SkillOutcome
) -> SkillOutcome:
    """Repeat one of the first runs of a version, and one of its cases; return the outcome, or a failure.

    A version with a consistent difference is put in quarantine, and its result is withheld.
    """
    if (
        not outcome.ok
        or outcome.counts.runs > FIRST_RUNS
        or outcome.seconds > _LONGEST_S
        or not _has_no_effect(version)
    ):
        return outcome
    try:
        why = await _find_difference(registry, version, policy, arguments, outcome.result)
        why = why or await _find_broken_case(registry, version, policy, outcome.counts.runs)
    except HermesError as error:
        _log.warning("%s %d: its run was not repeated: %s", version.name, version.number, error)
        return outcome
    if not why:
        return outcome
    _log.warning("%s %d: %s", version.name, version.number, why)
    registry.quarantine(version.name, version.number, why)
    return replace(outcome, result=None, error=_ERROR, kind="untrusted", denied=why, quarantined=True)


def _has_no_effect(version: Version) -> bool:
    """Whether a repeat cannot change anything outside its sandbox."""
    writable = any(folder.writable for folder in preconditions.read_folders(version))
    return not writable and not version.grants.get("hosts")


async def _find_difference(
    registry: Registry, version: Version, policy: Policy, arguments: Mapping[str, Any], result: Any
) -> str:
    """Return how a check differs from use, if it does so each time; else an empty text."""
    from hermes_exec_policies.gate.cases import is_same

    checked = await _repeat(registry, version, policy, arguments, observed=True)
    if not checked.ok or is_same(checked.result, result):
        return ""
    order = [False, True] * _CONFIRMATIONS
    random.shuffle(order)  # numbers that the kernel hands out in turn do not depend on the kind of call
    for observed in order:
        again = await _repeat(registry, version, policy, arguments, observed=observed)
        if not again.ok or not is_same(again.result, checked.result if observed else result):
            return ""
    return f"with the same arguments it returns {str(result)[:100]} in use and {str(checked.result)[:100]} in a check"


async def _find_broken_case(registry: Registry, version: Version, policy: Policy, runs: int) -> str:
    """Return which case of its proof fails now; each of the first runs tries the next case."""
    from hermes_exec_policies.gate.cases import Case, is_same

    recorded: dict[str, Any] = version.evidence.get("evidence") or {}
    held: list[dict[str, Any]] = list(recorded.get("held") or ())
    cases = [each for each in map(Case.from_facts, held) if each.returns]
    if not cases:
        return ""
    case = cases[(runs - 1) % len(cases)]
    called = await _repeat(registry, version, policy, case.arguments, observed=False)
    if not called.ok or is_same(called.result, case.result):
        return ""
    return f"a case of its proof fails now: for {str(case.arguments)[:100]} it returns {str(called.result)[:100]}"


async def _repeat(
    registry: Registry,
    version: Version,
    policy: Policy,
    arguments: Mapping[str, Any] | list[Any],
    *,
    observed: bool,
) -> CallResult:
    """Call the skill in a new sandbox; ``observed`` is whether every system call is observed, as in a check."""
    from hermes_exec_policies.gate.launch import encode_request, read_result
    from hermes_exec_policies.start_program import LOCAL

    async with AsyncExitStack() as stack:
        request = encode_request(arguments)
        sandbox = await sandboxes.create_sandbox(registry, version, policy, LOCAL, request, stack, observed=observed)
        sandbox.run.go()
        return read_result(await sandbox.run.wait())
