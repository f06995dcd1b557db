"""Run a registered skill: the bytes that were proven, in one new sandbox, under the policy of the proof.

Nothing of a skill is started on the strength of its name. What is not as it was signed is refused before anything of
it runs, and kept back from then on.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import shown
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.skills.registry.counts import Counts, Runs
from hermes_exec_agent.skills.run import denials, preconditions, sandboxes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec.config.profile import Profile
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run.sandboxes import Sandbox
    from hermes_exec_backends.sandbox.run import Ended
    from hermes_exec_policies.gate.launch import Called
    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.start_program import Place

_log = logging.getLogger(__name__)
FAILURES = 5
"""Failures in a row after which a version is kept back."""
_GENERIC = "refused for security; a person can see why"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run gave."""

    name: str
    version: int
    level: str
    """How strong the evidence for this version is."""
    result: Any
    error: str
    """One line; empty where it succeeded."""
    kind: str
    """That of its exception, or what ended it; ``security`` where it did what no skill has a reason to do."""
    denied: str
    """What the sandbox refused, if it did; for a person, never for a model."""
    logs: str
    """All that the skill printed."""
    seconds: float
    files: tuple[str, ...] = ()
    """What was brought out, by its path in the skill's data folder."""
    left: tuple[str, ...] = ()
    """What was not, and why."""
    declared: tuple[str, ...] = ()
    """Rules of its policy that only a vendor's word held: declared, never proven."""
    reached: tuple[str, ...] = ()
    """The hosts that it asked the proxy for, each with the answer's number: 200 is a connection, 403 a refusal."""
    counts: Counts = field(default_factory=Counts)
    quarantined: bool = False
    """Whether it is kept back since this run."""

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return not self.error


async def run(
    registry: Registry,
    name: str,
    arguments: Mapping[str, Any],
    *,
    number: int | None = None,
    files: Path | None = None,
    self_tested: bool = False,
    model: str = "",
    place: Place | Profile | None = None,
) -> Outcome:
    """Run a version of a skill, the current one by default, and wait for its end.

    Args:
        registry: where it is registered.
        name: the skill's.
        arguments: by their names; checked against the schema that was read when it was proven.
        number: of the version.
        files: a folder, which is made and must not be there, for what the skill leaves in its data folder.
        self_tested: whether a person agreed to run a skill for which nothing but its own tests speaks.
        model: the one that asks for it, under which it is counted; nothing where a person does.
        place: where its sandbox is made: on this machine, by bubblewrap, if left out; or a vendor's profile.

    Raises:
        UsageError: there is no such skill, or the arguments are not what it takes.
        Refused: it is not as it was proven, is kept back or archived, or nobody agreed; nothing of it ran.
        Unsupported: no sandbox that holds its policy can be had there; nothing of it ran.
        PlaceUnavailable: no sandbox can be made; nothing of it ran.
    """
    from hermes_exec_policies.canaries.prove import prove
    from hermes_exec_policies.gate.launch import request
    from hermes_exec_policies.start_program import LOCAL, Place

    version, policy = admitted(registry, name, arguments, number=number, files=files, self_tested=self_tested)
    if not isinstance(place, Place | None):
        return await _declared(registry, version, policy, place, request(arguments), files, model)
    where = place or LOCAL
    await prove(policy, where, watched=sandboxes.watched(policy, where))
    async with AsyncExitStack() as stack:
        sandbox = await sandboxes.ready(registry, version, policy, where, request(arguments), stack)
        return await finished(registry, sandbox, files=files, model=model)


async def _declared(
    registry: Registry,
    version: Version,
    policy: Policy,
    profile: Profile,
    stdin: bytes,
    files: Path | None,
    model: str,
) -> Outcome:
    from hermes_exec_agent.skills.run import clouds
    from hermes_exec_policies.gate.launch import read_result

    rules = clouds.declared(policy, profile.type)
    ended, collected, left = await clouds.run(registry, version, policy, profile, stdin, files)
    outcome = _told(registry, version, read_result(ended), ended, ended.duration_s, model)
    return replace(outcome, files=collected, left=left, declared=rules)


def admitted(
    registry: Registry,
    name: str,
    arguments: Mapping[str, Any],
    *,
    number: int | None = None,
    files: Path | None = None,
    self_tested: bool = False,
) -> tuple[Version, Policy]:
    """The version that may run with these arguments, and its policy.

    Raises:
        UsageError: there is no such skill, or the arguments are not what it takes.
        Refused: it is not as it was proven, is kept back or archived, or nobody agreed.
    """
    skill = registry.skill(name)
    version = registry.recorded(skill, number)
    preconditions.allowed(skill, version, self_tested=self_tested)
    preconditions.fit(version, arguments)
    if files is not None and os.path.lexists(files):
        raise UsageError(f"{shown(files)} is there already", remedy="name a folder that is to be made")
    if files is not None and not files.absolute().parent.is_dir():
        raise UsageError(f"{shown(files.absolute().parent)}: there is no such folder")
    policy = preconditions.policy_of(registry, version)
    preconditions.unchanged(version)
    return version, policy


async def finished(
    registry: Registry, sandbox: Sandbox, *, stdin: bytes | None = None, files: Path | None = None, model: str = ""
) -> Outcome:
    """Let the skill begin in a sandbox that is ready, wait for its end, and tell what came of it.

    Raises:
        PlaceUnavailable: it could not be started; nothing of it ran.
        TransferError: it left more than can be collected.
    """
    from hermes_exec_policies.gate.launch import read_result

    began = time.monotonic()
    sandbox.run.go(stdin)
    ended = await sandbox.run.wait()
    seconds = time.monotonic() - began
    collected, left = sandboxes.collected(sandbox, files) if files is not None else ((), ())
    seen = denials.seen(sandbox.version, sandbox.policy, ended)
    outcome = _told(registry, sandbox.version, read_result(ended), ended, seconds, model, seen)
    connections = sandbox.proxy.passed if sandbox.proxy else ()
    reached = tuple(f"{each.host}:{each.port} {each.status}" for each in connections)
    return replace(outcome, files=collected, left=left, reached=reached)


def _told(
    registry: Registry,
    version: Version,
    called: Called,
    ended: Ended,
    seconds: float,
    model: str,
    seen: tuple[str, ...] = (),
) -> Outcome:
    kind = denials.SECURITY if seen else called.error
    denied = "; ".join(seen) or denials.said(called)
    if denied:
        _log.warning("%s %d: %s", version.name, version.number, denied)
    counts, kept_back = Counts(), False
    try:
        if seen:
            registry.quarantine(version.name, version.number, denied)
            kept_back = True
        counts = Runs(registry.home.counts).count(version.name, version.number, seconds, kind, model)
        if counts.in_a_row >= FAILURES and not kept_back:
            registry.quarantine(version.name, version.number, f"it failed {counts.in_a_row} times in a row")
            kept_back = True
    except HermesError as uncounted:
        _log.warning("%s", uncounted)  # what the run gave is not lost for that
    return Outcome(
        name=version.name,
        version=version.number,
        level=version.level,
        result=None if seen else called.result,
        error=_GENERIC if seen else denials.failure(called),
        kind=kind,
        denied=denied,
        logs=ended.stderr.decode("utf-8", "replace"),
        seconds=seconds,
        counts=counts,
        quarantined=kept_back,
    )
