"""A skill under test: its calls and its own tests in sandboxes, with what was observed from outside."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hermes_exec_policies.gate import behavior_rules, launch
from hermes_exec_policies.gate.analysis.requirements import find_imports
from hermes_exec_policies.gate.cases import read_texts
from hermes_exec_policies.gate.launch import (
    CallResult,
    copy_path,
    launch_call,
    launch_imports,
    launch_mutants,
    launch_tests,
    launch_varied,
    read_result,
    to_call_result,
)
from hermes_exec_policies.gate.tree import copy_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hermes_exec_policies.gate.cases import LeftFile
    from hermes_exec_policies.gate.child_process import ChildProcess
    from hermes_exec_policies.gate.manifest import Manifest
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Finding
    from hermes_exec_policies.model import Policy

P = ParamSpec("P")
T = TypeVar("T")
_CPU_S = 60
"""The CPU time of one analysis of the skill's text."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A skill under test, and everything that its sandboxes need."""

    tree: Tree
    manifest: Manifest
    policy: Policy
    testing: Path
    work: Path
    """A private folder that the sandboxes can reach."""
    child: ChildProcess
    """Analyses its text."""
    environment: Path | None = None
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(launch.PARALLEL_RUNS))
    usual: list[Counter[Finding]] = field(default_factory=list["Counter[Finding]"])
    """The findings of its imported modules, once they were observed."""

    @property
    def wall_s(self) -> float:
        """The time limit of a run, in seconds."""
        return max(launch.WALL_S, self.manifest.needs.limits.get("limit-seconds", 0))

    @property
    def source(self) -> str:
        """The source text of the script with its function."""
        return self.tree.read(self.manifest.entry).decode()

    @property
    def tests(self) -> list[str]:
        """The source texts of its own tests."""
        files = [each.path for each in self.tree.files if each.path.startswith("tests/") and each.path.endswith(".py")]
        return [self.tree.read(each).decode() for each in files]

    async def analyze(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return what a function of ``analysis`` returns in a child process.

        Raises:
            Unanswered: it crashed, or hit a limit.
        """
        return await self.child.call(_CPU_S, function, *arguments, **named)

    async def call(
        self, arguments: dict[str, Any] | list[Any], root: Path | None = None, *, as_used: bool = False
    ) -> tuple[CallResult, launch.SandboxRun]:
        """Call the skill once from outside.

        Args:
            arguments: by name or by position.
            root: replaces the folder of its files.
            as_used: whether the call is exactly as in use: with a fresh copy of its files, and without the observation
                of allowed system calls, which makes them slower.
        """
        if as_used:
            root = copy_path(self.work, self.manifest.name)
            copy_files(self.tree, root)
        seen = await launch.run_launch(
            launch_call(
                self.policy, root or self.tree.root, self.manifest.module, entry=self.manifest.entry,
                function=self.manifest.signature.function, arguments=arguments, environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s, reads=True,
            watch=behavior_rules.REFUSED_CALLS if as_used else behavior_rules.WATCH,
        )  # fmt: skip
        if as_used and root is not None:
            await asyncio.to_thread(shutil.rmtree, root.parent)
        return read_result(seen.ended), await self._add_behavior(seen)

    async def call_varied(
        self, requests: Sequence[dict[str, Any] | list[Any]], root: Path
    ) -> tuple[list[CallResult], str]:
        """Call a script in ``root`` with several requests in one sandbox; return the results, and what it logged."""
        seen = await launch.run_launch(
            launch_varied(
                self.policy, root, self.manifest.module, entry=self.manifest.entry,
                function=self.manifest.signature.function, requests=requests, environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s, watch=behavior_rules.REFUSED_CALLS,
        )  # fmt: skip
        return [to_call_result(each) for each in seen.answers()], seen.log

    async def call_texts(
        self, texts: Sequence[str], arguments: dict[str, Any] | list[Any], kept: int
    ) -> list[tuple[CallResult, dict[str, LeftFile]]]:
        """Call other texts of the script with the same arguments in one sandbox; stops when its time is up.

        Returns the results, and the texts that were left in files, up to ``kept`` bytes for each.
        """
        seen = await launch.run_launch(
            launch_varied(
                self.policy, self.tree.root, self.manifest.module, entry=self.manifest.entry,
                function=self.manifest.signature.function, requests=[arguments] * len(texts), texts=texts, kept=kept,
                environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s, watch=behavior_rules.REFUSED_CALLS,
        )  # fmt: skip
        found = [(read_texts(each.pop("left", {})), each) for each in seen.answers()]
        return [(to_call_result(each), left) for left, each in found]

    def by_name(self, arguments: dict[str, Any] | list[Any]) -> dict[str, Any] | None:
        """Return arguments by name; None if there are too many."""
        if isinstance(arguments, dict):
            return arguments
        names = self.manifest.signature.names
        return dict(zip(names, arguments, strict=False)) if len(arguments) <= len(names) else None

    def plant(self, source: str, root: Path) -> None:
        """Copy the skill's files with hard links to the new folder ``root``, with another text of its script."""
        shutil.copytree(self.tree.root, root, copy_function=os.link)
        script = root / self.manifest.entry
        script.unlink()
        script.write_text(source, encoding="utf-8")

    async def test(self, root: Path | None = None) -> launch.SandboxRun:
        """Run the skill's own tests; ``root`` replaces the folder of its files."""
        seen = await launch.run_launch(
            launch_tests(
                self.policy, root or self.tree.root, self.manifest.module, testing=self.testing,
                environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s,
        )  # fmt: skip
        return await self._add_behavior(seen)

    async def test_mutants(self, folder: Path, numbers: Sequence[int], cpu_s: float) -> dict[int, int]:
        """Run the skill's own tests over mutants in ``folder``; return exit codes by the numbers of the tried ones."""
        seen = await launch.run_launch(
            launch_mutants(
                self.policy, self.tree.root, self.manifest.module, folder=folder, numbers=numbers, cpu_s=cpu_s,
                testing=self.testing, environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s,
        )  # fmt: skip
        return {each["mutant"]: each["code"] for each in seen.mutants()}

    async def _add_behavior(self, seen: launch.SandboxRun) -> launch.SandboxRun:
        """Return the run with the findings about its system calls."""
        if not seen.ended.acts:
            return seen
        if not self.usual:
            self.usual.append(await self._observe_imports())
        found = behavior_rules.judge_calls(seen.ended.acts, self.usual[0], hosts=bool(self.manifest.needs.hosts))
        return dataclasses.replace(seen, hygiene=(*seen.hygiene, *found))

    async def _observe_imports(self) -> Counter[Finding]:
        """Observe the findings that the imported modules cause by themselves."""
        texts = {each.path: self.tree.read(each.path).decode() for each in self.tree.files if each.path.endswith(".py")}
        names = await self.analyze(find_imports, texts)
        alone = await launch.run_launch(
            launch_imports(
                self.policy, self.tree.root, self.manifest.module, names, testing=self.testing,
                environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s,
        )  # fmt: skip
        return behavior_rules.count_baseline(alone.ended.acts)
