"""Each sandbox is looked at from outside: a program that makes another one than was specified is noticed every time."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Unsupported
from hermes_exec_backends.sandbox import Bind
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_backends.sandbox.mounts import (
    APPTAINER_MOUNTS,
    BUBBLEWRAP_MOUNTS,
    DOCKER_MOUNTS,
    HeldSources,
    RuntimeMounts,
    find_differences,
)
from hermes_exec_backends.sandbox.ready import NotAsSpecified
from hermes_exec_policies import start_program
from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.gate.check import Case, check
from hermes_exec_policies.gate.verdict import Level
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.start_program import LOCAL, SandboxTarget, start
from tests.conftest import require_part
from tests.rigs import apptainer, docker_engine
from tests.rigs.skill_makers import FILES
from tests.rigs.wrapped import wrap

if TYPE_CHECKING:
    from collections.abc import Generator

SKILL = "skill-validate"


_REPLACING = """\
#!/usr/bin/python3 -IS
import os, sys
if {given!r} + "/file" in sys.argv:
    os.replace({given!r} + "/new", {given!r} + "/file")
words = [{given!r} + "/old" if each == {given!r} + "/file" else each for each in sys.argv[1:]]
os.execv({program!r}, [{program!r}, *words])
"""


@pytest.fixture
def folder() -> Generator[Path]:
    """One that the user of a sandbox can reach."""
    require_part("bwrap", "it makes the sandboxes")
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def put_first(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


async def started(place: SandboxTarget = LOCAL, policy: str = SKILL, *more: Bind, **fields: Any) -> tuple[Any, Any]:
    """The facts of a sandbox, and its specification."""
    made, limits = build_confinement(load_policy(policy), this_machine(), place=place.kind)
    made = dataclasses.replace(made, binds=(*made.binds, *more), **fields)
    async with await start(place, made, ["/bin/true"], limits=limits) as run:
        return run.facts, made


CHANGES: dict[str, tuple[list[str], list[str], str]] = {
    "writable binds": (["--ro-bind"], ["--bind"], "files.write"),
    "a writable root": (["--remount-ro", "/"], [], "files.write"),
    "a writable /dev": (["--remount-ro", "/dev"], [], "files.write"),
    "a bind more": (["--proc", "/proc"], ["--proc", "/proc", "--ro-bind", "/root", "/root"], "files.hidden"),
    "a bind elsewhere": (["--proc", "/proc"], ["--proc", "/proc", "--ro-bind", "/var", "/srv"], "files.hidden"),
    "a bind on a bind": (["--proc", "/proc"], ["--proc", "/proc", "--ro-bind", "/var", "/usr/local"], "files.hidden"),
    "a folder more": (["--proc", "/proc"], ["--proc", "/proc", "--tmpfs", "/run"], "files.hidden"),
    "a device more": (["--remount-ro", "/dev"], ["--dev-bind", "/dev/tty", "/dev/tty"], "files.hidden"),
    "another device": (["/dev/full", "/dev/full"], ["/dev/kmsg", "/dev/full"], "files.hidden"),
    "another source": (["/etc/group", "/etc/group"], ["/etc/hostname", "/etc/group"], "files.hidden"),
    "a bind less": (["--ro-bind", "/etc/group", "/etc/group"], [], "files.hidden|cannot be confined"),
    "the machine's /proc": (["--proc", "/proc"], ["--ro-bind", "/proc", "/proc"], "processes.hidden|confined"),
    "the machine's network": (["--unshare-net"], [], "network.isolated"),
    "the machine's IPC": (["--unshare-ipc"], [], "processes.ipc"),
    "the machine's name": (["--unshare-uts"], [], "processes.hidden|no sandbox could be created"),
    "the machine's groups": (["--unshare-cgroup"], [], "processes.hidden"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_sandbox_that_is_made_otherwise_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    found, instead, rule = CHANGES[change]
    switch = wrap(folder, "bwrap", found, instead)
    put_first(monkeypatch, folder)
    asyncio.run(started())  # as it is
    switch.touch()
    with pytest.raises(Exception, match=rule) as caught:
        asyncio.run(started())
    if "confined" not in rule and "created" not in rule:
        assert isinstance(caught.value, NotAsSpecified)


def test_a_file_that_is_replaced_while_a_sandbox_is_created_is_no_difference(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """useradd replaces /etc/group so: the sandbox has the old file, and there is another one of that name."""
    given, program = folder / "given", folder / "bwrap"
    given.mkdir()
    given.chmod(0o777)  # the user of the sandbox replaces the file
    program.write_text(_REPLACING.format(program=shutil.which("bwrap"), given=str(given)))
    program.chmod(0o755)
    put_first(monkeypatch, folder)
    bind = Bind(source=str(given / "file"), target="/mnt")
    (given / "file").write_text("first")
    os.link(given / "file", given / "old")
    (given / "new").write_text("second")
    asyncio.run(started(LOCAL, "skill-run", bind))
    assert (given / "file").read_text() == "second"
    (given / "new").write_text("third")  # the old one had not this name any more when the sandbox was asked for
    with pytest.raises(NotAsSpecified, match="files.hidden: /mnt is not"):
        asyncio.run(started(LOCAL, "skill-run", bind))


@pytest.mark.parametrize("policy", ["skill-run", "skill-script", "workspace", "shared-workspace", "hpc"])
def test_the_sandbox_of_each_policy_is_as_specified(folder: Path, policy: str) -> None:
    asyncio.run(started(LOCAL, policy))


@pytest.fixture
def docker() -> tuple[SandboxTarget, RuntimeMounts]:
    require_part("root", "it looks at the processes of another user", usable=os.geteuid() == 0)
    engine = docker_engine.engine()
    return SandboxTarget("docker", engine.image(docker_engine.DEBIAN), engine.address), DOCKER_MOUNTS


@pytest.fixture
def singularity(folder: Path) -> tuple[SandboxTarget, RuntimeMounts]:
    require_part("root", "it becomes another user", usable=os.geteuid() == 0)
    return SandboxTarget("singularity", str(apptainer.tree(folder))), APPTAINER_MOUNTS


@pytest.fixture
def bubblewrap(folder: Path) -> tuple[SandboxTarget, RuntimeMounts]:
    assert folder.is_dir()
    return LOCAL, BUBBLEWRAP_MOUNTS


@pytest.mark.parametrize(
    "kind",
    [
        "bubblewrap",
        pytest.param("docker", marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
        pytest.param("singularity", marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
    ],
)
def test_one_more_bind_of_a_folder_is_a_difference_in_each_kind_of_place(
    request: pytest.FixtureRequest, kind: str
) -> None:
    place, runtime = request.getfixturevalue(kind)

    async def seen() -> list[list[str]]:
        made, limits = build_confinement(load_policy("skill-run"), this_machine(), place=place.kind)
        more = dataclasses.replace(made, binds=(*made.binds, Bind(source="/var/log", target="/mnt")))
        async with await start(place, more, ["/bin/true"], limits=limits) as run:
            given = run.facts.mounts, run.facts.pid, runtime, HeldSources(())
            other = dataclasses.replace(more.binds[-1], source="/var/lib")
            return [
                find_differences(more, *given),
                find_differences(made, *given),
                find_differences(dataclasses.replace(more, binds=(*made.binds, other)), *given),
                find_differences(dataclasses.replace(more, tmpfs=more.tmpfs[1:]), *given),
            ]

    as_it_is, one_less, another, without = asyncio.run(seen())
    assert as_it_is == []
    (more,) = one_less
    assert more.startswith("files.hidden: /mnt is mounted")
    assert another == ["files.hidden: /mnt is not /var/lib of this machine"]
    assert [each.partition(" is ")[0] for each in without] == ["files.hidden: /app/data"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_a_program_of_apptainer_mounts_besides_is_noticed(
    folder: Path, singularity: tuple[SandboxTarget, RuntimeMounts]
) -> None:
    (folder / "bin").mkdir()
    wrap(folder / "bin", "apptainer", ["--containall"], ["--containall", "--bind", "/var/log:/mnt:ro"]).touch()
    place = dataclasses.replace(singularity[0], program=str(folder / "bin/apptainer"))
    with pytest.raises(NotAsSpecified, match="files.hidden: /mnt is mounted"):
        asyncio.run(started(place, "skill-run"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_layer_that_is_lost_after_a_good_proof_is_noticed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program stays the same file: what it does changes, as it does where it reads a configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    head = "import pathlib\nimport sys\n\nsys.path.insert(0, str(pathlib.Path(__file__).parents[1] / 'scripts'))\n"
    for path, text in {**FILES, "tests/test_main.py": head + FILES["tests/test_main.py"]}.items():
        (tmp_path / "add-numbers" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "add-numbers" / path).write_text(text)
    case = Case.parse('{"arguments": {"a": 2, "b": 3}, "result": 5}', source=Level.PERSON)

    def judged() -> bool:
        return asyncio.run(check(tmp_path / "add-numbers", cases=[case])).accepted

    switch = wrap(folder, "bwrap", ["--ro-bind"], ["--bind"])
    put_first(monkeypatch, folder)
    assert judged()
    assert asyncio.run(prove(load_policy(SKILL), watched=True)).remembered
    switch.touch()
    with pytest.raises(Unsupported, match="files.write"):
        judged()
    argv = [sys.executable, "-I", "-m", "hermes_exec", "policy", "prove", "bubblewrap", "--policy", SKILL]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.returncode, "these rules do not hold: files.write" in done.stderr) == (1, True), done
    switch.unlink()
    with (folder / "bwrap").open("a") as program:
        program.write("# another one\n")
    assert not asyncio.run(prove(load_policy(SKILL), watched=True)).remembered


def test_another_program_image_configuration_or_profile_is_another_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_first(monkeypatch, tmp_path)
    seen = {asyncio.run(start_program.fingerprint_enforcers(LOCAL))}
    program = tmp_path / "bwrap"
    for text in ("one", "two"):
        program.write_text(text)
        program.chmod(0o755)
        seen.add(asyncio.run(start_program.fingerprint_enforcers(LOCAL)))
    times = program.stat()
    program.write_text("owt")
    os.utime(program, ns=(times.st_atime_ns, times.st_mtime_ns))  # of the same size, and seemingly as old
    seen.add(asyncio.run(start_program.fingerprint_enforcers(LOCAL)))
    assert len(seen) == 4
    for number, (name, digest) in enumerate((("mine", "ab"), ("other", "cd"))):
        (tmp_path / f"p/{name}.{number}").mkdir(parents=True)
        (tmp_path / f"p/{name}.{number}/name").write_text(f"{name}\n")
        (tmp_path / f"p/{name}.{number}/sha256").write_text(f"{digest}\n")
    assert start_program.read_profile_hashes("mine", str(tmp_path / "p")) == ["sha256 ab"]
    assert start_program.read_profile_hashes("", str(tmp_path / "p")) == []
