"""Run a registered skill: the bytes that were proven, in one new sandbox, under the policy of the proof.

Nothing of a skill is started on the strength of its name. What is not as it was signed is refused before anything of
it runs, and kept back from then on.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import shown
from hermes_exec.errors import HermesError, Refused, Unsupported, UsageError
from hermes_exec_agent.skills import checks, content
from hermes_exec_agent.skills.counts import Counts, Runs
from hermes_exec_agent.skills.private import private_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.record import Version
    from hermes_exec_agent.skills.registry import Registry
    from hermes_exec_backends.confined.run import Ended, Run
    from hermes_exec_policies.gate.launch import Called, Launch
    from hermes_exec_policies.model import Policy

_log = logging.getLogger(__name__)
FAILURES = 5
"""Failures in a row after which a version is kept back."""
DATA = "/app/data"
_FILES_MAX = 256 << 20
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_DENIALS = {13: "access was denied", 30: "it is read-only", 1: "it is not permitted"}
"""The three numbers of a denial: by a security module or an owner, by a mount, by a filter of system calls."""


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
    denied: str
    """What the sandbox refused, if it did."""
    logs: str
    """All that the skill printed."""
    seconds: float
    files: tuple[str, ...] = ()
    """What was brought out, by its path in the skill's data folder."""
    left: tuple[str, ...] = ()
    """What was not, and why."""
    counts: Counts = field(default_factory=Counts)
    quarantined: bool = False
    """Whether this run was one failure too many."""

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

    Raises:
        UsageError: there is no such skill, or the arguments are not what it takes.
        Refused: it is not as it was proven, is kept back or archived, or nobody agreed; nothing of it ran.
        Unsupported: no sandbox that holds its policy can be had here; nothing of it ran.
        PlaceUnavailable: no sandbox can be made; nothing of it ran.
    """
    from hermes_exec_policies.canaries.prove import prove
    from hermes_exec_policies.gate.launch import launch, read_result

    version = registry.version(name, number)
    checks.allowed(registry, version, self_tested=self_tested)
    checks.fit(version, arguments)
    if files is not None and os.path.lexists(files):  # noqa: ASYNC240  a look blocks nobody
        raise UsageError(f"{shown(files)} is there already", remedy="name a folder that is to be made")
    policy = checks.policy_of(registry, version)
    checks.unchanged(version)
    await prove(policy)
    with private_folder() as folder:
        tree = folder / "tree"
        try:
            content.copy(registry.tree(version), version.files, tree)
        except content.Changed as error:
            registry.quarantine(version.name, version.number, f"changed: {error.what}")
            raise
        call = launch(
            policy,
            tree,
            version.module,
            entry=version.entry,
            function=version.function,
            arguments=arguments,
            environment=checks.packages(registry, version, folder),
        )
        began = time.monotonic()
        ended, taken, left = await _started(registry, policy, call, files)
        seconds = time.monotonic() - began
    return _told(registry, version, read_result(ended), ended, seconds, taken, left, model)


async def _started(
    registry: Registry, policy: Policy, call: Launch, files: Path | None
) -> tuple[Ended, tuple[str, ...], tuple[str, ...]]:
    from hermes_exec_backends.bubblewrap.start import start
    from hermes_exec_policies.canaries.outside import amiss

    exposed = registry.home.exposes(bind.source for bind in call.confinement.binds)
    if exposed:
        raise Refused(f"the policy {policy.name} lets a skill see {exposed}, which holds the registry or its key")
    async with await start(call.confinement, call.argv, stdin=call.stdin, limits=call.limits) as sandbox:
        if seen := amiss(policy, call.confinement, sandbox.facts):
            raise Unsupported(f"the sandbox is not what {policy.name} asks for: {'; '.join(seen)}")
        sandbox.go()
        ended = await sandbox.wait()
        if files is None:
            return ended, (), ()
        return ended, *_collected(sandbox, DATA, files)


def _collected(sandbox: Run, source: str, into: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    taken = sandbox.collect(source, into, max_bytes=_FILES_MAX)
    found = sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file())
    return tuple(found), tuple(taken.left)


def _told(
    registry: Registry,
    version: Version,
    called: Called,
    ended: Ended,
    seconds: float,
    taken: tuple[str, ...],
    left: tuple[str, ...],
    model: str,
) -> Outcome:
    error = _line(called)
    denied = denial(called)
    if denied:
        _log.warning("%s %d: %s", version.name, version.number, denied)
    counts, kept_back = Counts(), False
    try:
        counts = Runs(registry.home.counts).count(version.name, version.number, seconds, called.error, model)
        if counts.in_a_row >= FAILURES:
            registry.quarantine(version.name, version.number, f"it failed {counts.in_a_row} times in a row")
            kept_back = True
    except HermesError as uncounted:
        _log.warning("%s", uncounted)  # what the run gave is not lost for that
    return Outcome(
        name=version.name,
        version=version.number,
        level=version.level,
        result=called.result,
        error=error,
        kind=called.error,
        denied=denied,
        logs=ended.stderr.decode("utf-8", "replace"),
        seconds=seconds,
        files=taken,
        left=left,
        counts=counts,
        quarantined=kept_back,
    )


def denial(called: Called) -> str:
    """The line that tells what the sandbox refused, if that is what a call failed of; else nothing."""
    found = _ERRNO.search(called.message)
    number = int(found[1]) if found else 0
    return f"Sandbox Jailbreak: {_line(called)} ({_DENIALS[number]})" if number in _DENIALS else ""


def _line(called: Called) -> str:
    """Why a call failed, in one line that moves no cursor; empty where it did not."""
    text = " ".join(called.message.split())
    said = f"{called.error}: {text}" if text else called.error
    return "".join(each if each.isprintable() else "?" for each in said)
