"""Run one script of a registered skill in a sandbox of its own. Nothing is promised of it but the sandbox.

The script sees the skill's files, which it cannot change, and copies of its input in a writable folder, where it leaves
its files. Its arguments pass no shell.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.counts import count_use
from hermes_exec_agent.skills.registry.record import ScriptGrants
from hermes_exec_agent.skills.run import denials, preconditions, sandboxes
from hermes_exec_policies.gate.verdict import Right

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_backends.sandbox.run import ProgramResult
    from hermes_exec_policies.folders import SharedFolder
    from hermes_exec_policies.gate.child_process import ChildProcess
    from hermes_exec_policies.gate.launch import SkillLaunch
    from hermes_exec_policies.model import Policy

_log = logging.getLogger(__name__)
_SHEBANG = re.compile(rb"#![ \t]*(?:/\S*/)?(?:env[ \t]+(?:-S[ \t]+)?)?([A-Za-z0-9._+-]+)")
_BY_SUFFIX = {
    ".py": "python3", ".sh": "sh", ".bash": "bash", ".js": "node", ".mjs": "node", ".cjs": "node", ".rb": "ruby",
    ".pl": "perl", ".php": "php", ".lua": "lua", ".ts": "deno", ".r": "Rscript",
}  # fmt: skip
_LINE_MAX = 256
_CPU_S = 60
"""The CPU time in which the requirements of a script are found."""
_SHELLS = {"sh": "/bin/sh", "dash": "/bin/sh", "bash": "/bin/bash"}
_MISSING = re.compile(rb"^ModuleNotFoundError: No module named '([A-Za-z0-9_]{1,60})", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOutcome:
    """The end of a script."""

    name: str
    version: int
    script: str
    exit_code: int | None
    """None if a signal or a limit ended it."""
    reason: str
    """Why it ended: ``exit code 3``, ``signal 9``, ``limit: wall``."""
    stdout: bytes
    stderr: bytes
    seconds: float
    files: tuple[str, ...] = ()
    """New and changed files that were copied out, by their paths in its folder."""
    left: tuple[str, ...] = ()
    """Files that were not, and why."""
    denied: str = ""
    """The operation that the sandbox refused and no skill has a reason for; for a person, never for a model."""
    hint: str = ""
    """What was refused and can be granted; empty otherwise."""
    packages: tuple[str, ...] = ()
    """The requirements that were installed for it."""
    reached: tuple[str, ...] = ()
    """The hosts that it requested from the proxy, each with the status."""

    @property
    def ok(self) -> bool:
        """Whether it ended with exit code 0, and nothing was denied."""
        return self.exit_code == 0 and not self.denied


def resolve_script(
    registry: Registry, name: str, script: str, number: int | None = None
) -> tuple[Skill, Version, ScriptGrants]:
    """Return the version whose script may run, and a person's grants to it.

    Raises:
        UsageError: there is no such skill, version or script.
        Refused: its scripts may not run.
    """
    skill = registry.skill(name)
    version = registry.read_version(skill, number)
    label = f"{version.name} {version.number}"
    preconditions.check_ready(skill, version, f"hermes-exec skill release {version.name}")
    paths = [each.path for each in version.files]
    if script not in paths:
        near = [each for each in paths if each.rpartition("/")[2] == script.rpartition("/")[2]]
        listed = near or [each for each in paths if each.startswith("scripts/")]
        remedy = f"one of {', '.join(listed[:20])}" if listed else f"hermes-exec skill show {version.name}"
        raise UsageError(f"{label} has no script {to_printable(script)}", remedy=remedy)
    if Right.SCRIPTS not in version.rights:
        raise Refused(
            f"{label}: its scripts may not run, as no sandbox was proven when it was registered",
            remedy=f"hermes-exec skill show {version.name}, and import it again where bubblewrap works",
        )
    return skill, version, skill.script_grants.get(version.digest, ScriptGrants())


async def run_script(  # noqa: PLR0913  each by its name
    registry: Registry,
    name: str,
    script: str,
    args: Sequence[str] = (),
    *,
    given: Sequence[Path] = (),
    stdin: bytes = b"",
    files: Path | None = None,
    number: int | None = None,
    time_limit_s: float | None = None,
) -> ScriptOutcome:
    """Run a script of a skill in a new sandbox on this machine, and wait for its end.

    Args:
        registry: where the skill is registered.
        name: the skill's.
        script: its path in the skill, such as ``scripts/fill.py``.
        args: its arguments.
        given: files and folders that are copied to its working directory, under their last names.
        stdin: its standard input.
        files: a new folder for the files that it creates or changes there.
        number: of the version; the current one by default.
        time_limit_s: a limit below that of the policy.

    Raises:
        UsageError: there is no such script, or an input cannot be given.
        Refused: it may not run, or its files or packages cannot be obtained; nothing of it ran.
        Unsupported: no sandbox here enforces its policy; nothing of it ran.
        PlaceUnavailable: no sandbox can be created; nothing of it ran.
    """
    from hermes_exec_policies.canaries.prove import prove
    from hermes_exec_policies.gate.behavior_rules import SCRIPT_CALLS
    from hermes_exec_policies.gate.launch import SKILLS, copy_path, launch_script
    from hermes_exec_policies.start_program import LOCAL

    _, version, grants = resolve_script(registry, name, script, number)
    preconditions.check_new_folder(files)
    policy, folders = _bind_grants(version, grants)
    await prove(policy, LOCAL, watched=sandboxes.is_watched(policy, LOCAL))
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(private_folder())
        tree = copy_path(folder, version.name)
        preconditions.copy_files(registry, version, tree)
        interpreter = _find_interpreter(version, find_program(tree, script), script, grants)
        wanted, packages = await _install(registry, version, tree, script, folder)
        inputs = copy_path(folder, "given")
        _copy_inputs(given, inputs)
        argv = (*interpreter, f"{SKILLS}/{version.name}/{script}", *args)
        launch = launch_script(policy, tree, version.name, argv, given=inputs, environment=packages, place=LOCAL.kind)
        launch = _limit_time(launch, time_limit_s)
        sandbox = await sandboxes.hold(
            registry, version, policy, LOCAL, launch, stdin, stack, tree=tree, folders=folders, calls=SCRIPT_CALLS,
            copied=True,
        )  # fmt: skip
        sandbox.run.go()
        count_use(registry.home.counts, version.name)
        ended = await sandbox.run.wait()
        collected, left = ((), ()) if files is None else _collect(sandbox, files, inputs)
        denied, hint = _judge(registry, version, policy, ended)
        connections = sandbox.proxy.requests if sandbox.proxy else ()
    return ScriptOutcome(
        name=version.name,
        version=version.number,
        script=script,
        exit_code=None if ended.limit else ended.exit.code,
        reason=_describe_end(ended),
        stdout=ended.stdout,
        stderr=ended.stderr,
        seconds=ended.duration_s,
        files=collected,
        left=left,
        denied=denied,
        hint=hint,
        packages=wanted,
        reached=tuple(f"{each.host}:{each.port} {each.status}" for each in connections),
    )


def _bind_grants(version: Version, grants: ScriptGrants) -> tuple[Policy, list[SharedFolder]]:
    """Return the policy of scripts with the granted hosts and folders.

    Raises:
        Refused: a grant can no longer be given.
    """
    from hermes_exec_policies.egress import grant_hosts
    from hermes_exec_policies.folders import SharedFolder, with_folders
    from hermes_exec_policies.gate.launch import SCRIPT_POLICY
    from hermes_exec_policies.load import load_policy

    try:
        folders = [SharedFolder.parse_grant(each) for each in grants.folders]
        return with_folders(grant_hosts(load_policy(SCRIPT_POLICY), grants.hosts), folders), folders
    except (ValueError, HermesError) as error:
        raise Refused(
            f"{version.name} {version.number}: its grants cannot be applied: {error}",
            remedy=f"hermes-exec skill grant {version.name}",
        ) from error


def find_program(tree: Path, script: str) -> str:
    """Return the name of the program that runs a script, by its ending or its first line.

    Raises:
        UsageError: it has neither a known ending nor a ``#!`` line.
    """
    with (tree / script).open("rb") as file:
        hit = _SHEBANG.match(file.readline(_LINE_MAX))
    program = _BY_SUFFIX.get(Path(script).suffix.lower(), "") or (hit[1].decode() if hit else "")
    if not program:
        raise UsageError(f"{to_printable(script)} is not a script: it has neither a known ending nor a #! line")
    return program


def _find_interpreter(version: Version, program: str, script: str, grants: ScriptGrants) -> tuple[str, ...]:
    """Return the argv that runs a script: Python, a POSIX shell, or an interpreter that a person granted.

    Raises:
        Refused: its interpreter was not granted, or is not installed.
    """
    from hermes_exec_policies.gate.launch import PYTHON

    if program.startswith("python"):
        return PYTHON, "-s"
    if program in _SHELLS:
        return (_SHELLS[program],)
    if program not in grants.interpreters:
        raise Refused(
            f"{version.name} {version.number}: {script} needs {program}, which was not granted",
            remedy=f"hermes-exec skill grant {version.name} --interpreter {program}",
        )
    path = shutil.which(program, path="/usr/bin:/bin")
    if path is None:
        raise Refused(f"{version.name} {version.number}: {program} is not installed in /usr/bin")
    return (path,)


async def _install(
    registry: Registry, version: Version, tree: Path, script: str, folder: Path
) -> tuple[tuple[str, ...], Path | None]:
    """Return the requirements of a script, and its packages where a sandbox can reach them; None if it needs none.

    Raises:
        Refused: a requirement is invalid, or cannot be installed.
    """
    from hermes_exec_policies.gate.analysis.requirements import find_script_requirements
    from hermes_exec_policies.gate.child_process import ChildProcess
    from hermes_exec_policies.gate.environments import Environments, install, share_environment
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import FUNCTION_POLICY, SkillRefused
    from hermes_exec_policies.load import load_policy

    async with ChildProcess() as child:
        metadata = await _read_metadata(child, tree)
        files = Tree(tree, version.files).facts()
        wanted, wrong = await child.call(_CPU_S, find_script_requirements, files, script, metadata)
    if wrong:
        raise Refused(f"{version.name} {version.number}: {wrong[0].path}: {wrong[0].operator}")
    if not wanted:
        return (), None
    try:
        (work := folder / "work").mkdir()
        work.chmod(0o755)
        kept = await install(load_policy(FUNCTION_POLICY), wanted, work, Environments(registry.home.environments))
    except SkillRefused as error:
        raise Refused(f"{version.name} {version.number}: {error.findings[0].operator}") from error
    return tuple(wanted), share_environment(kept, folder / "packages")


async def _read_metadata(child: ChildProcess, tree: Path) -> dict[str, str]:
    """Return the metadata of SKILL.md, values as text."""
    from hermes_exec_policies.gate.manifest import read_front_matter

    front = await read_front_matter(child, (tree / "SKILL.md").read_text("utf-8-sig"), "", lenient=True)
    found: Any = front.fields.get("metadata")
    if not isinstance(found, dict):
        return {}
    return {str(key): _join_words(value) for key, value in found.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  YAML


def _join_words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  YAML


def _copy_inputs(given: Iterable[Path], into: Path) -> None:
    """Copy files and folders for a script; links are copied as what they lead to.

    Raises:
        UsageError: one does not exist, cannot be read, or has the name of another.
    """
    for path in given:
        target = into / path.absolute().name
        if target.exists():
            raise UsageError(f"two inputs are named {to_printable(target.name)}", remedy="rename one of them")
        try:
            if path.is_dir():
                shutil.copytree(path, target)
            else:
                shutil.copyfile(path, target)
        except (OSError, shutil.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"{to_printable(path)} cannot be given to the script: {reason}") from error
    for path in into.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _limit_time(launch: SkillLaunch, time_limit_s: float | None) -> SkillLaunch:
    """Return the launch with the lower of its time limit and ``time_limit_s``."""
    if time_limit_s is None:
        return launch
    wall_s = min(time_limit_s, launch.limits.wall_s or time_limit_s)
    return replace(launch, limits=replace(launch.limits, wall_s=wall_s))


def _collect(sandbox: sandboxes.SkillSandbox, files: Path, inputs: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy new and changed files to the new folder ``files``; return their paths, and those left behind."""
    found, left = sandboxes.collect_files(sandbox, files)
    return _drop_unchanged(files, found, inputs), left


def _drop_unchanged(files: Path, found: Iterable[str], inputs: Path) -> tuple[str, ...]:
    """Remove copies of unchanged inputs from the collected files; return the paths that are left."""
    kept: list[str] = []
    for path in found:
        original = inputs / path
        if original.is_file() and _digest(original) == _digest(files / path):
            (files / path).unlink()
        else:
            kept.append(path)
    for folder in sorted((each for each in files.rglob("*") if each.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    return tuple(kept)


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _judge(registry: Registry, version: Version, policy: Policy, ended: ProgramResult) -> tuple[str, str]:
    """Quarantine a version whose script attempted an operation that no skill has a reason for.

    Returns:
        The operation, and a hint about a use of the network without a grant or a module that is missing, which many
        honest scripts have; each may be empty.
    """
    seen, network = denials.find_script_denials(version, policy, ended)
    remedy = f"a person can allow hosts: hermes-exec skill grant {version.name} --host HOST"
    hint = f"it tried to use the network, which was not granted; {remedy}" if network else ""
    if denials.is_server_refused(policy, ended):
        hint = "it tried to listen on a port, which is refused: with granted hosts a script may use no port but the "
        hint += f"proxy's. Remove the hosts (hermes-exec skill grant {version.name} --remove --host HOST), or let "
        hint += "another skill serve, one without granted hosts"
    if not hint and (missing := _MISSING.search(ended.stderr)):
        hint = f"there is no module {missing[1].decode()}. If a package has it, add the package to needs-packages in "
        hint += f"metadata of SKILL.md: hermes-exec skill edit {version.name}"
    if not seen:
        return "", hint
    denied = "; ".join(seen)
    _log.warning("%s %d: %s", version.name, version.number, denied)
    registry.quarantine(version.name, version.number, denied)
    return denied, hint


def _describe_end(ended: ProgramResult) -> str:
    if ended.limit:
        return f"limit: {ended.limit}"
    if ended.exit.code is not None:
        return f"exit code {ended.exit.code}"
    return f"signal {ended.exit.signal}" if ended.exit.signal else "lost"
