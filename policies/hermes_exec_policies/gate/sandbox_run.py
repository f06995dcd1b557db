"""One run in one sandbox, and the observations of it from outside."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import TransferError
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_policies.gate.audit.destinations import ONLY_DATA
from hermes_exec_policies.gate.behavior_rules import WATCH
from hermes_exec_policies.gate.files import DATA, read_left_files
from hermes_exec_policies.gate.verdict import Finding, functional, security

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hermes_exec_backends.sandbox.collect import Collected
    from hermes_exec_backends.sandbox.observe import WatchSpec
    from hermes_exec_backends.sandbox.run import ProgramResult
    from hermes_exec_policies.gate.files import LeftFile
    from hermes_exec_policies.gate.launch import SkillLaunch

_SHARED = "/dev/shm"  # noqa: S108  the sandbox's own
WALL_S = 60.0
"""Seconds that a run may take while a skill is checked, unless it was granted more."""
_OUTPUT = 4 << 20
_FILES = 4096
_STARTS = re.compile(
    r"(^|/)(sitecustomize\.py|usercustomize\.py|[^/]*\.pth|\.pythonrc(\.py)?|\.bashrc|\.bash_profile|\.profile)$"
)
_FORBIDDEN = re.compile(r"\[Errno (1|13|30)\] [^\n:]*: '([^'\n]+)'")
_NETWORK = re.compile(r"\[Errno (?:101|-2|-3|97)\]|Network is unreachable|Name or service not known|name resolution")
PARALLEL_RUNS = 2
"""The most concurrent sandboxes of one skill, so that it does not occupy the whole machine."""


@dataclass(frozen=True, slots=True)
class SandboxRun:
    """The observations of one run."""

    ended: ProgramResult
    hygiene: tuple[Finding, ...]
    left: Mapping[str, LeftFile] = field(default_factory=dict[str, "LeftFile"])
    """The files in its folder after the run, if requested."""

    @property
    def limit(self) -> str:
        """The limit that ended the run; the kernel sends these signals when the CPU time is used up."""
        if self.ended.exit.signal in {signal.SIGXCPU, signal.SIGKILL}:
            return self.ended.limit or "cpu"
        return self.ended.limit

    @property
    def log(self) -> str:
        """The untrusted output of the skill, for display alone."""
        return self.ended.stderr.decode("utf-8", "replace")

    def tests(self) -> list[dict[str, Any]]:
        """Return the outcomes of the tests, which the skill could forge."""
        return [each for each in self._lines() if isinstance(each.get("test"), str)]

    def mutants(self) -> list[dict[str, int]]:
        """Return the number of each mutant and the exit code of its tests."""
        return [each for each in self._lines() if all(isinstance(each.get(name), int) for name in ("mutant", "code"))]

    def answers(self) -> list[dict[str, Any]]:
        """Return the results of several requests, in their order; a forged or missing one ends the list."""
        found: list[dict[str, Any]] = []
        for each in self._lines():
            if each.pop("request", None) != len(found):
                break
            found.append(each)
        return found

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self.ended.stdout.splitlines()[:10_000]:
            try:
                told = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(told, dict):
                yield told  # pyright: ignore[reportUnknownVariableType]  JSON


async def run_launch(
    launch: SkillLaunch,
    turns: asyncio.Semaphore,
    *,
    wall_s: float = WALL_S,
    reads: bool = False,
    watch: WatchSpec = WATCH,
) -> SandboxRun:
    """Run a launch to its end, after waiting for its turn.

    Args:
        launch: the launch.
        turns: bounds the number of concurrent runs.
        wall_s: the most seconds that any limit may allow.
        reads: whether to return the files that it wrote.
        watch: the calls to observe.

    Raises:
        Unsupported: the sandbox is not what was specified, or cannot be.
        PlaceUnavailable: no sandbox can be created.
    """
    wall = min(launch.limits.wall_s or wall_s, wall_s)
    limits = dataclasses.replace(launch.limits, wall_s=wall, output=min(launch.limits.output or _OUTPUT, _OUTPUT))
    async with (
        turns,
        await start(launch.confinement, launch.argv, stdin=launch.stdin, limits=limits, watch=watch) as held,
    ):
        held.go()
        ended = await held.wait()
        with tempfile.TemporaryDirectory(prefix="hermes-gate-") as folder:
            try:
                data = held.collect(DATA, Path(folder) / "data", max_bytes=256 << 20, max_files=_FILES)
                shared = held.collect(_SHARED, Path(folder) / "shared", max_bytes=256 << 20, max_files=_FILES)
            except TransferError as error:
                return SandboxRun(ended, (functional("suites.files", f"what it wrote cannot be taken: {error.what}"),))
            found = [
                *_check_files(Path(folder) / "data", data.left),
                *_find_leftovers(ended, Path(folder) / "shared", shared.left),
            ]
            left = read_left_files(Path(folder) / "data") if reads else {}
            return SandboxRun(ended, (*found, *_check_full(launch, data)), left)


def find_denials(text: str) -> list[Finding]:
    """Find denials of the sandbox in a log, by the forms of the kernel's error messages."""
    if _NETWORK.search(text):
        return [security("suites.denied-network", "Sandbox Jailbreak: it tried to use the network")]
    outside = sorted({path for _, path in _FORBIDDEN.findall(text) if not (path + "/").startswith(DATA + "/")})
    return [
        functional("suites.denied-write", f"Sandbox Jailbreak: {path} cannot be used; {ONLY_DATA}")
        for path in outside[:3]
    ]


def _find_leftovers(ended: ProgramResult, shared: Path, odd: list[str]) -> list[Finding]:
    """Find processes and shared memory that outlived the run; in use, a sandbox may serve more than one run."""
    found = [functional("suites.processes", f"it left a process running: {each}") for each in ended.left[:3]]
    if ended.hit:
        found.append(functional("suites.limit", f"it asked for more than it may have: {ended.hit}"))
    names = sorted(str(each.relative_to(shared)) for each in shared.rglob("*") if each.is_file()) + odd
    return found + [functional("suites.files", f"it left shared memory behind: {each}") for each in names[:3]]


def _check_full(launch: SkillLaunch, data: Collected) -> list[Finding]:
    """Find out whether the run reached the limit of files, which it may have hidden."""
    (room,) = [each.inodes for each in launch.confinement.tmpfs if each.target == DATA]
    if data.files + data.folders + 1 < room:  # the folder itself counts as one
        return []
    return [functional("suites.limit", f"it filled {DATA}, which has room for {room} files and folders")]


def _check_files(data: Path, left: list[str]) -> list[Finding]:
    found = [
        security("suites.start-up", f"it left what would change an interpreter or a shell: {path}")
        for path in sorted(str(each.relative_to(data)) for each in data.rglob("*") if each.is_file())
        if _STARTS.search(path)
    ]
    odd = [each for each in left if not each.startswith(("pytest-of-", "pytest-")) and "link" not in each]
    return found + [functional("suites.files", f"it left something that is no plain file: {each}") for each in odd[:3]]
