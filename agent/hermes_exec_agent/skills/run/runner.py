"""Run a registered skill: the bytes that were proven, in one new sandbox, under the policy of the proof.

A name alone starts nothing: files that differ from the signed list are refused before anything of them runs, and the
version is quarantined.
"""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.skills.registry.counts import RunCounter, RunCounts
from hermes_exec_agent.skills.run import denials, preconditions, sandboxes
from hermes_exec_agent.skills.run.outcome import SkillOutcome
from hermes_exec_agent.skills.run.recheck import recheck

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec.config.profile import Profile
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run.sandboxes import SkillSandbox
    from hermes_exec_backends.sandbox.run import ProgramResult
    from hermes_exec_policies.gate.launch import CallResult
    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.start_program import SandboxTarget

_log = logging.getLogger(__name__)
FAILURES = 5
"""Failures in a row after which a version is quarantined."""
_GENERIC = "refused for security; a person can see why"


async def run(
    registry: Registry,
    name: str,
    arguments: Mapping[str, Any],
    *,
    number: int | None = None,
    files: Path | None = None,
    self_tested: bool = False,
    model: str = "",
    place: SandboxTarget | Profile | None = None,
) -> SkillOutcome:
    """Run a version of a skill, the current one by default, and wait for its end.

    Args:
        registry: where it is registered.
        name: the skill's.
        arguments: by name; checked against the schema of the proof.
        number: of the version.
        files: a new folder for the files in the skill's data folder.
        self_tested: whether a person approved the run of a skill that is self-tested.
        model: the one that requests the run, for the counters; empty if a person does.
        place: where its sandbox is created: on this machine, by bubblewrap, if left out; or a cloud provider's profile.

    Raises:
        UsageError: the skill does not exist, or does not accept the arguments.
        Refused: it differs from its proof, is quarantined, archived or not approved; nothing of it ran.
        Unsupported: no sandbox there enforces its policy; nothing of it ran.
        PlaceUnavailable: no sandbox can be created; nothing of it ran.
    """
    from hermes_exec_policies.canaries.prove import prove
    from hermes_exec_policies.gate.launch import encode_request
    from hermes_exec_policies.start_program import LOCAL, SandboxTarget

    version, policy = resolve_run(registry, name, arguments, number=number, files=files, self_tested=self_tested)
    if not isinstance(place, SandboxTarget | None):
        return await _run_in_cloud(registry, version, policy, place, encode_request(arguments), files, model)
    where = place or LOCAL
    await prove(policy, where, watched=sandboxes.is_watched(policy, where))
    async with AsyncExitStack() as stack:
        sandbox = await sandboxes.create_sandbox(registry, version, policy, where, encode_request(arguments), stack)
        outcome = await run_to_end(registry, sandbox, files=files, model=model)
    if where.kind != LOCAL.kind:
        return outcome
    return await recheck(registry, version, policy, arguments, outcome)


async def _run_in_cloud(
    registry: Registry,
    version: Version,
    policy: Policy,
    profile: Profile,
    stdin: bytes,
    files: Path | None,
    model: str,
) -> SkillOutcome:
    from hermes_exec_agent.skills.run import clouds
    from hermes_exec_policies.gate.launch import read_result

    rules = clouds.find_declared_rules(policy, profile.type)
    ended, collected, left = await clouds.run(registry, version, policy, profile, stdin, files)
    outcome = _record_outcome(registry, version, read_result(ended), ended, ended.duration_s, model)
    return replace(outcome, files=collected, left=left, declared=rules)


def resolve_run(
    registry: Registry,
    name: str,
    arguments: Mapping[str, Any],
    *,
    number: int | None = None,
    files: Path | None = None,
    self_tested: bool = False,
) -> tuple[Version, Policy]:
    """Return the version that may run with these arguments, and its policy.

    Raises:
        UsageError: the skill does not exist, or does not accept the arguments.
        Refused: it differs from its proof, is quarantined, archived or not approved.
    """
    skill = registry.skill(name)
    version = registry.read_version(skill, number)
    preconditions.check_allowed(skill, version, self_tested=self_tested)
    preconditions.check_arguments(version, arguments)
    preconditions.check_new_folder(files)
    policy = preconditions.resolve_policy(registry, version)
    preconditions.check_unchanged(version)
    return version, policy


async def run_to_end(
    registry: Registry, sandbox: SkillSandbox, *, stdin: bytes | None = None, files: Path | None = None, model: str = ""
) -> SkillOutcome:
    """Start the skill in a prepared sandbox, wait for its end, and return its outcome.

    Raises:
        PlaceUnavailable: it could not be started; nothing of it ran.
        TransferError: its files exceed the limits.
    """
    from hermes_exec_policies.gate.launch import read_result

    began = time.monotonic()
    sandbox.run.go(stdin)
    ended = await sandbox.run.wait()
    seconds = time.monotonic() - began
    collected, left = sandboxes.collect_files(sandbox, files) if files is not None else ((), ())
    seen = denials.find_denials(sandbox.version, sandbox.policy, ended)
    outcome = _record_outcome(registry, sandbox.version, read_result(ended), ended, seconds, model, seen)
    connections = sandbox.proxy.requests if sandbox.proxy else ()
    reached = tuple(f"{each.host}:{each.port} {each.status}" for each in connections)
    return replace(outcome, files=collected, left=left, reached=reached)


def _record_outcome(
    registry: Registry,
    version: Version,
    called: CallResult,
    ended: ProgramResult,
    seconds: float,
    model: str,
    seen: tuple[str, ...] = (),
) -> SkillOutcome:
    kind = denials.SECURITY if seen else called.error
    denied = "; ".join(seen) or denials.describe_denial(called)
    if denied:
        _log.warning("%s %d: %s", version.name, version.number, denied)
    counts, kept_back = RunCounts(), False
    try:
        if seen:
            registry.quarantine(version.name, version.number, denied)
            kept_back = True
        counts = RunCounter(registry.home.counts).count(version.name, version.number, seconds, kind, model)
        if counts.in_a_row >= FAILURES and not kept_back:
            registry.quarantine(version.name, version.number, f"it failed {counts.in_a_row} times in a row")
            kept_back = True
    except HermesError as uncounted:
        _log.warning("%s", uncounted)  # the result does not depend on it
    return SkillOutcome(
        name=version.name,
        version=version.number,
        level=version.level,
        result=None if seen else called.result,
        error=_GENERIC if seen else denials.describe_failure(called),
        kind=kind,
        denied=denied,
        logs=ended.stderr.decode("utf-8", "replace"),
        seconds=seconds,
        counts=counts,
        quarantined=kept_back,
    )
