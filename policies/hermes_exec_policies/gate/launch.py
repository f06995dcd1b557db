"""Prepare launches of skills: a check and a use are launched alike, so that a skill cannot distinguish them."""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import secrets
import subprocess
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec_backends.sandbox.control import FLAGS
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.confinement import DEFAULT_KIND, build_confinement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hermes_exec_backends.sandbox import Confinement, Limits
    from hermes_exec_backends.sandbox.run import ProgramResult
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
_DATA = "/app/data"
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
        UsageError: the arguments cannot be said in JSON.
    """
    words = caller_argv(module, entry, function, packages=environment is not None)
    stdin = b"" if arguments is None else encode_request(arguments)
    return _build_launch(policy, tree, module, words, stdin, environment, place=place)


def encode_request(arguments: Mapping[str, Any] | list[Any]) -> bytes:
    """Encode a request for the standard input of the program that calls a skill.

    Raises:
        UsageError: the arguments cannot be said in JSON.
    """
    try:
        plain: Any = json.loads(json.dumps(arguments, allow_nan=False))
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"the arguments cannot be said in JSON: {error}") from error
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
    words = (*first, GIVEN, _DATA, paths, *argv)
    launch = _build_launch(
        policy, tree, name, words, b"", environment, {str(given): GIVEN}, place, program=SHELL, cwd=_DATA
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


def launch_varied(
    policy: Policy,
    tree: Path,
    module: str,
    *,
    entry: str,
    function: str,
    requests: Sequence[Mapping[str, Any] | list[Any]],
    environment: Path | None = None,
) -> SkillLaunch:
    """Prepare the launch of calls with several requests, one after the other in one new sandbox.

    Raises:
        Unsupported: a required rule cannot be enforced here.
    """
    given = (f"{SKILLS}/{module}", entry, function, PACKAGES if environment else "", read_program("call"))
    words = ("-I", "-S", "-B", "-c", read_program("varied"), *given)
    return _build_launch(policy, tree, module, words, marshal.dumps([*requests], _OLDEST), environment)


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
