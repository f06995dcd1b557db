"""Sandboxes that are created before a skill is called: each takes one run and is never used again.

Everything that does not depend on the arguments is done in advance: the sandbox is started from outside, confined and
inspected, its interpreter runs, and the program that calls the skill is loaded. Nothing of the skill has run. Its files
are compared with the signed list once more before use.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from hermes_exec._async import cancel_and_wait
from hermes_exec.errors import HermesError
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.run import runner, sandboxes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.skills.run.outcome import SkillOutcome
    from hermes_exec_agent.skills.run.sandboxes import SkillSandbox
    from hermes_exec_policies.model import Policy

_log = logging.getLogger(__name__)
KEPT_S = 900.0
"""How long one is kept; the next call of the skill replaces it."""


@dataclass(frozen=True, slots=True)
class _WarmSandbox:
    sandbox: SkillSandbox
    stack: AsyncExitStack
    since: float

    def serves(self, version: Version, policy: Policy) -> bool:
        """Whether it still matches the version and the policy."""
        same = self.sandbox.version.digest == version.digest and self.sandbox.version.environment == version.environment
        return same and self.sandbox.policy.digest == policy.digest and time.monotonic() - self.since < KEPT_S


class WarmRunner:
    """Runs the skills of one registry on this machine, and keeps sandboxes of recently called ones ready."""

    def __init__(self, registry: Registry, *, ready: int = 2, skills: int = 8) -> None:
        """Keep ``ready`` sandboxes of each of the last ``skills`` skills that were called."""
        self.registry = registry
        self._ready = ready
        self._skills = skills
        self._kept: dict[tuple[str, int], list[_WarmSandbox]] = {}
        self._filling: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        number: int | None = None,
        files: Path | None = None,
        self_tested: bool = False,
        model: str = "",
    ) -> SkillOutcome:
        """Run as ``runner.run`` does, in a prepared sandbox if there is one, else in a new one.

        Raises:
            HermesError: as there; nothing of the skill ran.
        """
        from hermes_exec_agent.skills.run.recheck import recheck
        from hermes_exec_policies.gate.launch import encode_request

        version, policy = runner.resolve_run(
            self.registry, name, arguments, number=number, files=files, self_tested=self_tested
        )
        kept = self._take(version, policy)
        try:
            if kept is None:
                return await runner.run(
                    self.registry,
                    name,
                    arguments,
                    number=version.number,
                    files=files,
                    self_tested=self_tested,
                    model=model,
                )
            stdin = encode_request(arguments)
            outcome = await runner.run_to_end(self.registry, kept.sandbox, stdin=stdin, files=files, model=model)
            return await recheck(self.registry, version, policy, arguments, outcome)
        finally:
            if kept is not None:
                self._discard(kept)
            self._fill(version, policy)

    async def prepare(self, name: str, number: int | None = None) -> None:
        """Create sandboxes of a skill.

        Raises:
            HermesError: none can be created; the message has the cause.
        """
        from hermes_exec_agent.skills.run import preconditions

        version = self.registry.version(name, number)
        policy = preconditions.resolve_policy(self.registry, version)
        preconditions.check_unchanged(version)
        await self._create_sandboxes(version, policy)

    def sandboxes(self) -> list[SkillSandbox]:
        """Return the prepared sandboxes."""
        return [kept.sandbox for group in self._kept.values() for kept in group]

    async def wait_until_filled(self) -> None:
        """Wait until used sandboxes are replaced."""
        await asyncio.gather(*self._filling.values())

    async def close(self) -> None:
        """End every sandbox, and create no more. Safe to call twice."""
        self._closed = True
        await cancel_and_wait(self._filling.values())
        for kept in [each for group in self._kept.values() for each in group]:
            self._discard(kept)
        self._kept.clear()
        await asyncio.gather(*self._leaving)

    async def __aenter__(self) -> Self:
        """Return the runner; no sandbox is prepared yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the runner."""
        await self.close()

    def _take(self, version: Version, policy: Policy) -> _WarmSandbox | None:
        """Return a prepared sandbox whose files still match the signed list."""
        group = self._kept.get((version.name, version.number), [])
        while group:
            kept = group.pop()
            if kept.serves(version, policy) and not _has_ended(kept.sandbox) and self._is_untouched(kept, version):
                return kept
            self._discard(kept)
        return None

    def _is_untouched(self, kept: _WarmSandbox, version: Version) -> bool:
        """Whether its copies and their originals match the signed list; a new sandbox reports a difference."""
        from hermes_exec_policies.gate.environments import environment_digest

        sandbox = kept.sandbox
        if any(content.find_differences(tree, version.files) for tree in (sandbox.tree, self.registry.tree(version))):
            return False
        try:
            return sandbox.packages is None or environment_digest(sandbox.packages) == version.environment
        except (OSError, HermesError):
            return False

    def _fill(self, version: Version, policy: Policy) -> None:
        """Replace used sandboxes in the background."""
        key = (version.name, version.number)
        if key not in self._filling and not self._closed:
            self._filling[key] = task = asyncio.get_running_loop().create_task(
                self._fill_in_background(version, policy)
            )
            task.add_done_callback(lambda _: self._filling.pop(key, None))

    async def _fill_in_background(self, version: Version, policy: Policy) -> None:
        try:
            await self._create_sandboxes(version, policy)
        except (HermesError, OSError) as error:
            _log.info("no sandbox of %s is kept ready: %s", version.name, error)  # the next call says it

    async def _create_sandboxes(self, version: Version, policy: Policy) -> None:
        from hermes_exec_policies.canaries.prove import prove
        from hermes_exec_policies.start_program import LOCAL

        await prove(policy, watched=sandboxes.is_watched(policy, LOCAL))
        if self._closed:
            return
        key = (version.name, version.number)
        group = self._kept.setdefault(key, [])
        while len(group) < self._ready:
            async with AsyncExitStack() as stack:
                sandbox = await sandboxes.create_sandbox(self.registry, version, policy, LOCAL, None, stack)
                if self._kept.get(key) is not group:
                    return  # others took its place meanwhile, or all is closed
                group.append(_WarmSandbox(sandbox, stack.pop_all(), time.monotonic()))
        while len(self._kept) > self._skills:
            for kept in self._kept.pop(next(iter(self._kept))):
                self._discard(kept)

    def _discard(self, kept: _WarmSandbox) -> None:
        task = asyncio.get_running_loop().create_task(kept.stack.aclose())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _has_ended(sandbox: SkillSandbox) -> bool:
    """Whether it was ended meanwhile."""
    import select

    return bool(select.select([sandbox.run.first], [], [], 0)[0])
