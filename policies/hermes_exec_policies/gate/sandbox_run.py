"""One run in one sandbox, and what was seen of it from outside."""

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
    from hermes_exec_backends.sandbox.run import ProgramResult
    from hermes_exec_policies.gate.files import LeftFile
    from hermes_exec_policies.gate.launch import SkillLaunch

_SHARED = "/dev/shm"  # noqa: S108  the sandbox's own
WALL_S = 60.0
"""How long a run may take while a skill is checked, unless it was granted more."""
_OUTPUT = 4 << 20
_FILES = 4096
_STARTS = re.compile(
    r"(^|/)(sitecustomize\.py|usercustomize\.py|[^/]*\.pth|\.pythonrc(\.py)?|\.bashrc|\.bash_profile|\.profile)$"
)
_FORBIDDEN = re.compile(r"\[Errno (1|13|30)\] [^\n:]*: '([^'\n]+)'")
_NETWORK = re.compile(r"\[Errno (?:101|-2|-3|97)\]|Network is unreachable|Name or service not known|name resolution")
PARALLEL_RUNS = 2
"""How many sandboxes of one skill there are at once, which leaves the machine to others too."""


@dataclass(frozen=True, slots=True)
class SandboxRun:
    """What was seen of one run."""

    ended: ProgramResult
    hygiene: tuple[Finding, ...]
    left: Mapping[str, LeftFile] = field(default_factory=dict[str, "LeftFile"])
    """The files in its folder afterwards, where they were asked for."""

    @property
    def limit(self) -> str:
        """The limit that ended it; the kernel ends with these signals what has had its time of the processor."""
        if self.ended.exit.signal in {signal.SIGXCPU, signal.SIGKILL}:
            return self.ended.limit or "cpu"
        return self.ended.limit

    @property
    def log(self) -> str:
        """What it printed; to be shown, never to be believed."""
        return self.ended.stderr.decode("utf-8", "replace")

    def tests(self) -> list[dict[str, Any]]:
        """How its tests ended, in its own words."""
        return [each for each in self._lines() if isinstance(each.get("test"), str)]

    def mutants(self) -> list[dict[str, int]]:
        """The numbers of mutants, and how the tests of each ended."""
        return [each for each in self._lines() if all(isinstance(each.get(name), int) for name in ("mutant", "code"))]

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self.ended.stdout.splitlines()[:10_000]:
            try:
                told = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(told, dict):
                yield told  # pyright: ignore[reportUnknownVariableType]  JSON


async def run_launch(
    launch: SkillLaunch, turns: asyncio.Semaphore, *, wall_s: float = WALL_S, reads: bool = False
) -> SandboxRun:
    """Run a launch to its end, when it is its turn; ``wall_s`` is the longest that it may take, whatever its limits.

    ``reads`` is whether the files that it leaves are wanted.

    Raises:
        Unsupported: the sandbox is not what was specified, or cannot be.
        PlaceUnavailable: no sandbox can be made.
    """
    wall = min(launch.limits.wall_s or wall_s, wall_s)
    limits = dataclasses.replace(launch.limits, wall_s=wall, output=min(launch.limits.output or _OUTPUT, _OUTPUT))
    async with (
        turns,
        await start(launch.confinement, launch.argv, stdin=launch.stdin, limits=limits, watch=WATCH) as held,
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
    """What a sandbox forbade, as far as a log tells: one finding for every shape in which a kernel says it."""
    if _NETWORK.search(text):
        return [security("suites.denied-network", "Sandbox Jailbreak: it tried to use the network")]
    outside = sorted({path for _, path in _FORBIDDEN.findall(text) if not (path + "/").startswith(DATA + "/")})
    return [
        functional("suites.denied-write", f"Sandbox Jailbreak: {path} cannot be used; {ONLY_DATA}")
        for path in outside[:3]
    ]


def _find_leftovers(ended: ProgramResult, shared: Path, odd: list[str]) -> list[Finding]:
    """What outlived it; its sandbox takes all of that along, but where it is used there may be more in a sandbox."""
    found = [functional("suites.processes", f"it left a process running: {each}") for each in ended.left[:3]]
    if ended.hit:
        found.append(functional("suites.limit", f"it asked for more than it may have: {ended.hit}"))
    names = sorted(str(each.relative_to(shared)) for each in shared.rglob("*") if each.is_file()) + odd
    return found + [functional("suites.files", f"it left shared memory behind: {each}") for each in names[:3]]


def _check_full(launch: SkillLaunch, data: Collected) -> list[Finding]:
    """Whether it left as many files as there can be, of which it may have kept silent."""
    (room,) = [each.inodes for each in launch.confinement.tmpfs if each.target == DATA]
    if data.files + data.folders + 1 < room:  # the folder itself is one
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
