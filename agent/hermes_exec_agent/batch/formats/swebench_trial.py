"""A trial of a row of SWE-bench: one commit in the working folder, the agent's patch, and the tests on top of it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import write_private
from hermes_exec.errors import UsageError
from hermes_exec_agent.batch.formats.grading import STEP_S, CheckFault, Grade, refuse_unfinished
from hermes_exec_agent.batch.formats.log_parsers import find_missing, list_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

    from hermes_exec import Terminal
    from hermes_exec_agent.batch.formats.swebench import SweBenchSpec
    from hermes_exec_agent.batch.places import AttemptPlace
    from hermes_exec_agent.batch.trials import Trial

_OUTPUT = 4 << 20
_PATCH = 1 << 20
"""Bytes of the patch that an agent may leave."""
_IDENTITY = {
    "GIT_AUTHOR_NAME": "batch", "GIT_AUTHOR_EMAIL": "batch@localhost", "GIT_COMMITTER_NAME": "batch",
    "GIT_COMMITTER_EMAIL": "batch@localhost", "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


class SweBenchTrial:
    """What a trial of a row does before and after its agent, in the working folder."""

    def __init__(
        self, trial: Trial, spec: SweBenchSpec, files: Path, patch_path: Path, clean: Callable[[str], str]
    ) -> None:
        """Prepare it.

        Args:
            trial: of the row.
            spec: the row's parts.
            files: the folder of the run's copied files.
            patch_path: where the agent's patch is kept.
            clean: removes secrets from it.
        """
        self.solution_env: dict[str, str] = {}
        self._trial = trial
        self._spec = spec
        self._files = files / trial.task.id
        self._patch_path = patch_path
        self._clean = clean
        self._base = ""
        self._folder = ""

    async def prepare(self, place: AttemptPlace, *, with_solution: bool) -> None:
        """Upload the files, and commit them; see `Grading.prepare`."""
        terminal = place.terminal
        self._folder = place.folder or (await terminal.run("pwd -P", timeout=STEP_S)).stdout_text.rstrip("\n")
        await terminal.upload(self._files, self._folder)
        await self._run(terminal, "git init -q && git add -A -f && git commit -q --allow-empty -m base")
        self._base = (await self._run(terminal, "git rev-parse HEAD")).strip()
        if with_solution:
            await terminal.write(f"{self._folder}/.git/solution.patch", self._spec.patch.encode())

    @contextlib.asynccontextmanager
    async def open_for_agent(self, place: AttemptPlace) -> AsyncGenerator[AttemptPlace]:
        """Return the target with the folder of the repository."""
        yield replace(place, folder=self._folder)

    async def grade(self, place: AttemptPlace) -> Grade:
        """Keep the agent's patch, apply the tests, and run them; see `Grading.grade`."""
        terminal, tests = place.terminal, self._spec.test_files
        patch = await self._read_patch(terminal, tests)
        text = self._clean(patch.decode("utf-8", "replace"))
        await asyncio.to_thread(write_private, self._patch_path, text.encode("utf-8", "replace"))
        try:
            for name in tests:  # what the agent did to the files of the tests does not count
                restore = f'git checkout -q {self._base} -- "$1" 2>/dev/null || rm -rf -- "$1"'
                await self._run(terminal, restore, name)
            await terminal.write(f"{self._folder}/.git/tests.patch", self._spec.test_patch.encode())
            await self._run(terminal, "git apply --whitespace=nowarn .git/tests.patch")
        except UsageError as error:
            raise CheckFault(f"the tests could not be applied: {error}") from error
        names = list_arguments(self._spec.parser, self._spec.command, tests)
        argv = ["/bin/sh", "-c", f'{self._spec.command} "$@"', "sh", *names]
        limit_s = self._trial.task.check_timeout_s
        done = await terminal.run(argv, cwd=self._folder, timeout=limit_s, merge_stderr=True, max_output=_OUTPUT)
        refuse_unfinished(done)
        wanted = (*self._spec.fail_to_pass, *self._spec.pass_to_pass)
        missing = find_missing(done.stdout_text, self._spec.parser, wanted)
        why = f"not passed: {', '.join(missing[:3])}" if missing else "all passed"
        record: dict[str, Any] = {
            "exit_code": done.exit_code,
            "seconds": round(done.duration_s, 3),
            "last": why,
            "passed": len(wanted) - len(missing),
            "wanted": len(wanted),
            "patch": bool(patch.strip()),
        }
        return Grade(float(not missing), record, why)

    async def _read_patch(self, terminal: Terminal, tests: Sequence[str]) -> bytes:
        excluded = [f":(exclude,literal){name}" for name in tests]
        argv = ["git", "-c", "core.quotePath=true", "diff", "--cached", "--binary", self._base, "--", ".", *excluded]
        try:
            await self._run(terminal, "git add -A")
        except UsageError as error:
            raise CheckFault(f"the patch cannot be read: {error}") from error
        done = await terminal.run(argv, cwd=self._folder, env=_IDENTITY, timeout=STEP_S, max_output=_PATCH + 1)
        if not done.ok or len(done.stdout) > _PATCH:
            why = f"it has more than {_PATCH} bytes" if done.ok else done.reason
            raise CheckFault(f"the patch cannot be read: {why}")
        return done.stdout

    async def _run(self, terminal: Terminal, command: str, *arguments: str) -> str:
        argv = ["/bin/sh", "-c", command, "sh", *arguments]
        done = await terminal.run(argv, cwd=self._folder, env=_IDENTITY, timeout=STEP_S, merge_stderr=True)
        if not done.ok:
            raise UsageError(f"{command}: {done.reason}: {done.stdout_text[-200:].strip()}")
        return done.stdout_text
