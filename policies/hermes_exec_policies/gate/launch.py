"""Launch skills in sandboxes: a check and a use are launched alike, so that a skill cannot distinguish them.

A check also runs its launches here, and observes them from outside.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import marshal
import os
import re
import secrets
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import PlaceUnavailable, TransferError, UsageError
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox.control import FLAGS
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.confinement import DEFAULT_KIND, build_confinement
from hermes_exec_policies.gate.analysis.audit import ONLY_DATA
from hermes_exec_policies.gate.behavior_rules import WATCH
from hermes_exec_policies.gate.cases import DATA, read_left_files
from hermes_exec_policies.gate.verdict import Finding, functional, security

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hermes_exec_backends.sandbox import Confinement, Limits
    from hermes_exec_backends.sandbox.collect import Collected
    from hermes_exec_backends.sandbox.observe import WatchSpec
    from hermes_exec_backends.sandbox.run import ProgramResult
    from hermes_exec_policies.gate.cases import LeftFile
    from hermes_exec_policies.model import Policy


SKILLS = "/app/skills"
PACKAGES = f"{SKILLS}/.packages"
TESTING = f"{SKILLS}/.testing"
MUTANTS = f"{SKILLS}/.mutants"
GIVEN = "/app/folders/given"
SCRIPT_POLICY = "skill-script"
"""The policy under which scripts of skills run."""
PYTHON = "/usr/bin/python3"
SHELL = "/bin/sh"
_PROGRAMS = "/app/bin"
"""A folder with the name ``python``, which many scripts call; a system may have ``python3`` alone."""
_SCRIPT = f'cp -R "$1/." "$2" && export PYTHONPATH="$3" PATH="{_PROGRAMS}:$PATH" && shift 3 && exec "$@"'
"""Copies the input to the data folder, and becomes the script's interpreter."""
_BRIDGED = f'{PYTHON} {FLAGS} "$1" "$2" && shift 2 && {_SCRIPT}'
_START_BRIDGE = 'import sys; names = {"__name__": ""}; exec(sys.argv[1], names); names["bridge"]()'
"""Starts the process that makes the proxy for granted hosts reachable on a loopback port."""
_OLDEST = 2
"""The version of the marshal format that every Python reads; JSON would need the import of a module."""


@dataclass(frozen=True, slots=True)
class SkillLaunch:
    """The arguments of ``start``."""

    confinement: Confinement
    argv: tuple[str, ...]
    stdin: bytes
    limits: Limits


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of calling a skill."""

    ok: bool
    result: Any = None
    error: str = ""
    """The type of its exception, or the cause of its end: ``ValueError``, ``timeout``, ``signal 11``, ``no result``."""
    message: str = ""
    missing: str = ""
    """The name of a missing module."""


def copy_path(folder: Path, name: str) -> Path:
    """Create a folder for one run's copy of files that its sandbox reads, which are copied there before it starts.

    A skill can read the path and the age of its folder. Both are alike in a check and in a use.
    """
    path = folder / secrets.token_hex(16) / name
    for each in (path.parent, path):
        each.mkdir()
        each.chmod(0o755)  # a sandbox's user must reach it, independent of the umask
    return path


def launch_call(
    policy: Policy,
    tree: Path,
    module: str,
    *,
    entry: str,
    function: str,
    arguments: Mapping[str, Any] | list[Any] | None = None,
    environment: Path | None = None,
    place: str = DEFAULT_KIND,
) -> SkillLaunch:
    """Prepare the launch of one call of a skill in a new sandbox.

    Args:
        policy: its confinement.
        tree: the folder of its files, which the sandbox's user must be able to reach.
        module: its name in Python's spelling; its files appear at /app/skills/MODULE.
        entry: the script that is called.
        function: the function in it.
        arguments: by name, or by position; None if the request is sent later.
        environment: the folder of its packages.
        place: the kind of target in which it is started.

    Raises:
        Unsupported: a required rule cannot be enforced there.
        UsageError: the arguments cannot be encoded as JSON.
    """
    words = caller_argv(module, entry, function, packages=environment is not None)
    stdin = b"" if arguments is None else encode_request(arguments)
    return _build_launch(policy, tree, module, words, stdin, environment, place=place)


def encode_request(arguments: Mapping[str, Any] | list[Any]) -> bytes:
    """Encode a request for the standard input of the program that calls a skill.

    Raises:
        UsageError: the arguments cannot be encoded as JSON.
    """
    try:
        plain: Any = json.loads(json.dumps(arguments, allow_nan=False))
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"the arguments cannot be encoded as JSON: {error}") from error
    return marshal.dumps(plain, _OLDEST)


def caller_argv(module: str, entry: str, function: str, *, packages: bool) -> tuple[str, ...]:
    """Return the argv of an interpreter that calls a skill after reading a request from its standard input."""
    return FLAGS, read_program("call"), f"{SKILLS}/{module}", entry, function, PACKAGES if packages else ""


def launch_script(
    policy: Policy,
    tree: Path,
    name: str,
    argv: Sequence[str],
    *,
    given: Path,
    environment: Path | None = None,
    place: str = DEFAULT_KIND,
) -> SkillLaunch:
    """Prepare the launch of one script of a skill in a new sandbox, in a writable folder with copies of its input.

    Args:
        policy: its confinement.
        tree: the folder of its files, which appear at /app/skills/NAME and cannot be written to.
        name: the skill's.
        argv: the interpreter, the script and its arguments; no shell parses them.
        given: a folder whose files are copied to /app/data, the working directory and home folder.
        environment: the folder of its packages; PYTHONPATH has it, and the skill's folder.
        place: the kind of target in which it is started.

    Raises:
        Unsupported: a required rule cannot be enforced there.
    """
    paths = f"{SKILLS}/{name}:{PACKAGES}" if environment else f"{SKILLS}/{name}"
    first: tuple[str, ...] = ("-c", _SCRIPT, "sh")
    if policy.network.access == "hosts":
        first = ("-c", _BRIDGED, "sh", _START_BRIDGE, read_program("call"))
    words = (*first, GIVEN, DATA, paths, *argv)
    launch = _build_launch(
        policy, tree, name, words, b"", environment, {str(given): GIVEN}, place, program=SHELL, cwd=DATA
    )
    links = (*launch.confinement.links, (f"{_PROGRAMS}/python", PYTHON))
    return replace(launch, confinement=replace(launch.confinement, links=links))


def launch_tests(
    policy: Policy, tree: Path, module: str, *, testing: Path, environment: Path | None = None
) -> SkillLaunch:
    """Prepare the launch of a skill's tests in a new sandbox; ``testing`` is the folder that contains pytest.

    Raises:
        Unsupported: a required rule cannot be enforced here.
    """
    words = (
        "-I",
        "-S",
        "-B",
        "-c",
        read_program("tests"),
        f"{SKILLS}/{module}",
        TESTING,
        PACKAGES if environment else "",
    )
    return _build_launch(policy, tree, module, words, b"", environment, {str(testing): TESTING})


def launch_mutants(
    policy: Policy,
    tree: Path,
    module: str,
    *,
    folder: Path,
    numbers: Sequence[int],
    cpu_s: float,
    testing: Path,
    environment: Path | None = None,
) -> SkillLaunch:
    """Prepare the launch of the tests of the mutants in FOLDER/NUMBER/MODULE, one after the other in a new sandbox.

    Raises:
        Unsupported: a required rule cannot be enforced here.
    """
    listed = " ".join(map(str, numbers))
    given = (module, MUTANTS, TESTING, PACKAGES if environment else "", listed, str(cpu_s))
    words = ("-I", "-S", "-B", "-c", read_program("mutated"), *given)
    return _build_launch(policy, tree, module, words, b"", environment, {str(testing): TESTING, str(folder): MUTANTS})


def launch_varied(  # noqa: PLR0913  each is a part of the launch
    policy: Policy,
    tree: Path,
    module: str,
    *,
    entry: str,
    function: str,
    requests: Sequence[Mapping[str, Any] | list[Any]],
    texts: Sequence[str] = (),
    kept: int = 0,
    environment: Path | None = None,
) -> SkillLaunch:
    """Prepare the launch of calls with several requests, one after the other in one new sandbox.

    ``texts`` replace the script, one for each request; of the files that a call leaves, ``kept`` bytes are reported.

    Raises:
        Unsupported: a required rule cannot be enforced here.
    """
    given = (f"{SKILLS}/{module}", entry, function, PACKAGES if environment else "", read_program("call"))
    words = ("-I", "-S", "-B", "-c", read_program("varied"), *given)
    return _build_launch(
        policy, tree, module, words, marshal.dumps([[*texts], [*requests], kept], _OLDEST), environment
    )


def launch_imports(
    policy: Policy, tree: Path, module: str, names: Sequence[str], *, testing: Path, environment: Path | None = None
) -> SkillLaunch:
    """Prepare the launch of a program that imports modules by ``names``, without the skill, in a sandbox as for tests.

    Raises:
        Unsupported: a required rule cannot be enforced here.
    """
    words = ("-I", "-S", "-B", "-c", read_program("imports"), " ".join(names), PACKAGES if environment else "", TESTING)
    return _build_launch(policy, tree, module, words, b"", environment, {str(testing): TESTING})


def read_result(ended: ProgramResult) -> CallResult:
    """Return the result of a call; all of it is untrusted output of the skill."""
    if ended.limit:
        return CallResult(ok=False, error="timeout" if ended.limit in {"wall", "cpu"} else f"limit: {ended.limit}")
    if ended.exit.code is None:
        return CallResult(ok=False, error=f"signal {ended.exit.signal}" if ended.exit.signal else "lost")
    try:
        told = json.loads(ended.stdout)
    except (ValueError, RecursionError):
        return CallResult(ok=False, error="no result")
    called = to_call_result(told)
    return called if not called.ok or ended.exit.code == 0 else CallResult(ok=False, error="no result")


def to_call_result(told: Any) -> CallResult:
    """Convert a document of the program that calls a skill; all of it is untrusted output of the skill."""
    if isinstance(told, dict) and set(told) == {"result"}:  # pyright: ignore[reportUnknownArgumentType]  JSON
        return CallResult(ok=True, result=told["result"])
    error: Any = told.get("error") if isinstance(told, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  JSON
    if not isinstance(error, dict):
        return CallResult(ok=False, error="no result")
    kind, message, missing = (str(error.get(name, ""))[:500] for name in ("type", "message", "missing"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  JSON
    return CallResult(ok=False, error=kind, message=message, missing=missing)


def _build_launch(  # noqa: PLR0913  each is a part of the launch
    policy: Policy,
    tree: Path,
    module: str,
    words: tuple[str, ...],
    stdin: bytes,
    environment: Path | None,
    more: Mapping[str, str] | None = None,
    place: str = DEFAULT_KIND,
    *,
    program: str = PYTHON,
    cwd: str = "",
) -> SkillLaunch:
    readonly = {str(tree): f"{SKILLS}/{module}", **(more or {})}
    if environment is not None:
        readonly[str(environment)] = PACKAGES
    confinement, limits = build_confinement(
        policy, this_machine(), readonly=readonly, cwd=cwd or f"{SKILLS}/{module}", place=place
    )
    # Isolated and without `site`: no variable, .pth file or package of this machine has an effect.
    return SkillLaunch(confinement, (program, *words), stdin, limits)


@cache
def read_program(name: str) -> str:
    """Return the text of a program that is sent to sandboxes."""
    return files("hermes_exec_policies.gate.inside").joinpath(f"{name}.py").read_text("utf-8")


def identify_interpreter(python: str) -> str:
    """Return the resolved path of ``python`` and the hash of its bytes; evidence is valid for one interpreter alone.

    Raises:
        PlaceUnavailable: there is no interpreter.
    """
    path = os.path.realpath(python)
    try:
        seen = os.stat(path)  # noqa: PTH116  as the hash of the same file is computed
        return f"{path} sha256:{_hash_file(path, seen.st_ino, seen.st_size, seen.st_mtime_ns)}"
    except OSError as error:
        raise PlaceUnavailable(f"{python}: {error.strerror}", remedy="install Python there") from error


@cache
def _hash_file(path: str, *_seen: int) -> str:
    with open(path, "rb") as file:  # noqa: PTH123  one descriptor, one digest
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def python_version() -> str:
    """Return the version of the interpreter of sandboxes, as in ``3.11``."""
    words = [PYTHON, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


_SHARED = "/dev/shm"  # noqa: S108  the sandbox's own
MORE = "let it need less, or declare a higher limit in metadata of SKILL.md, as in limit-seconds: 120"
"""What to do at a limit."""
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
    found = [
        functional("suites.processes", f"it left a process running: {each}; wait for it or end it before you return")
        for each in ended.left[:3]
    ]
    if ended.hit:
        found.append(functional("suites.limit", f"it asked for more than it may have: {ended.hit}; {MORE}"))
    names = sorted(str(each.relative_to(shared)) for each in shared.rglob("*") if each.is_file()) + odd
    return found + [
        functional("suites.files", f"it left shared memory behind: {each}; unlink it before you return")
        for each in names[:3]
    ]


def _check_full(launch: SkillLaunch, data: Collected) -> list[Finding]:
    """Find out whether the run reached the limit of files, which it may have hidden."""
    (room,) = [each.inodes for each in launch.confinement.tmpfs if each.target == DATA]
    if data.files + data.folders + 1 < room:  # the folder itself counts as one
        return []
    return [functional("suites.limit", f"it filled {DATA}, which has room for {room} files and folders; write fewer")]


def _check_files(data: Path, left: list[str]) -> list[Finding]:
    found = [
        security("suites.start-up", f"it left what would change an interpreter or a shell: {path}")
        for path in sorted(str(each.relative_to(data)) for each in data.rglob("*") if each.is_file())
        if _STARTS.search(path)
    ]
    odd = [each for each in left if not each.startswith(("pytest-of-", "pytest-")) and "link" not in each]
    return found + [
        functional("suites.files", f"it left something that is not a regular file: {each}; remove it before you return")
        for each in odd[:3]
    ]
