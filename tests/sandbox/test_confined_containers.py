"""One untrusted program in one container of Docker or Apptainer: held, looked at, limited, ended whole, collected."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Unsupported, UsageError
from hermes_exec_backends.docker.start import start as start_docker
from hermes_exec_backends.sandbox import Bind, Confinement, Landlock, Limits, Tmpfs
from hermes_exec_backends.sandbox.procfs import read_facts
from hermes_exec_backends.singularity.start import start as start_apptainer
from tests.conftest import require_part
from tests.rigs import apptainer as apptainer_rig
from tests.rigs import docker_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from hermes_exec_backends.sandbox.run import ProgramResult, Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PYTHON = "/usr/bin/python3"
USER = 61_777
LIMITS = Limits(wall_s=120, output=1 << 20, memory=256 << 20, processes=30)
WHOLE = Confinement(
    tmpfs=(Tmpfs(target="/app/data", size=1 << 20, inodes=40),),
    masked=("/sys", "/proc/keys"),
    env=(("PATH", "/usr/bin:/bin"), ("GIVEN", "yes")),
    uid=USER,
    gid=USER,
    rlimits=(("nofile", 77, 77),),
    cwd="/app/data",
)


@dataclasses.dataclass(frozen=True)
class Place:
    """A kind of container, and what it is started from."""

    name: str
    options: dict[str, Any]
    specification: Confinement

    async def start(self, code: str, *, stdin: bytes = b"", limits: Limits = LIMITS, **changes: Any) -> Run:
        """Hold a Python text in one."""
        wanted = dataclasses.replace(self.specification, **changes)
        started = start_docker if self.name == "docker" else start_apptainer
        return await started(wanted, [PYTHON, "-I", "-c", code], stdin=stdin, limits=limits, **self.options)

    def run(self, code: str, **options: Any) -> ProgramResult:
        """Let it run to its end."""

        async def once() -> ProgramResult:
            async with await self.start(code, **options) as run:
                run.go()
                return await run.wait()

        return asyncio.run(once())


@pytest.fixture(scope="module")
def apptainer_place() -> Generator[Place]:
    require_part("root", "it becomes another user", usable=os.geteuid() == 0)
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Place("apptainer", {"image": str(apptainer_rig.tree(Path(folder)))}, WHOLE)


@pytest.fixture(scope="module")
def docker_place() -> Place:
    require_part("root", "it looks at the processes of another user", usable=os.geteuid() == 0)
    engine = docker_engine.engine()
    namespaces = frozenset({"pid", "net", "ipc", "uts", "cgroup"})
    options = {"image": engine.image(docker_engine.DEBIAN), "engine": engine.address}
    return Place("docker", options, dataclasses.replace(WHOLE, namespaces=namespaces))


@pytest.fixture(params=["docker", "apptainer"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


def test_a_program_waits_until_it_was_looked_at_from_outside(place: Place) -> None:
    async def once() -> None:
        async with await place.start("open('/app/data/began', 'w')") as run:
            facts = run.facts
            assert set(facts.uids) == {USER}
            assert (set(facts.caps.values()), facts.no_new_privs) == ({0}, True)
            ours = {name: Path("/proc/self/ns", name).stat().st_ino for name in place.specification.namespaces}
            assert not [name for name, number in ours.items() if facts.namespaces[name] == number]
            data = Path(f"/proc/{facts.pid}/root", "app/data")
            assert list(data.iterdir()) == []
            run.go()
            assert (await run.wait()).exit.code == 0

    asyncio.run(once())


def test_what_it_reads_and_writes_is_its_own(place: Place) -> None:
    code = "import os,sys; print(sys.stdin.read(), sorted(os.environ)); print('bad', file=sys.stderr); sys.exit(7)"
    ended = place.run(code, stdin=b"given")
    assert (ended.exit.code, ended.limit) == (7, "")
    assert ended.stdout == b"given ['GIVEN', 'PATH']\n"
    assert ended.stderr == b"bad\n"


def test_the_signal_that_ended_it_is_told(place: Place) -> None:
    assert place.run("import os; os.kill(os.getpid(), 15)").exit.signal == 15


ENDS: dict[str, tuple[str, Limits]] = {
    "wall": ("import os, time; os.fork() or os.setsid(); time.sleep(600)", dataclasses.replace(LIMITS, wall_s=1)),
    "output": ("while True: print('x' * 9999)", LIMITS),
    "memory": ("kept = [bytearray(1 << 20) for _ in range(600)]; print('had')", LIMITS),
}


@pytest.mark.parametrize("limit", ENDS)
def test_a_limit_ends_it_with_all_that_it_started(place: Place, limit: str) -> None:
    code, limits = ENDS[limit]

    async def once() -> None:
        async with await place.start(code, limits=limits) as run:
            run.go()
            ended = await run.wait()
            assert ended.limit == limit
            assert b"had" not in ended.stdout
            with pytest.raises(Exception, match="cannot be read from outside"):
                read_facts(run.facts.pid)

    asyncio.run(once())


def test_processes_are_bounded(place: Place) -> None:
    code = """
import os, signal
made = 0
try:
    while made < 200:
        if os.fork() == 0:
            signal.pause()
        made += 1
except OSError as error:
    print(error.errno, made < 40, flush=True)
os._exit(0)
"""
    ended = place.run(code)
    assert (ended.stdout, ended.limit) in {(b"11 True\n", ""), (b"", "processes")}


def test_files_are_collected_without_following_links(place: Place, tmp_path: Path) -> None:
    code = "import os; open('made', 'w').write('x'); os.symlink('/etc/shadow', 'link'); os.mkfifo('pipe')"

    async def once() -> None:
        async with await place.start(code) as run:
            run.go()
            ended = await run.wait()
            assert ended.exit.code == 0, ended.stderr
            taken = run.collect("/app/data", tmp_path / "out", max_bytes=1000)
            assert sorted(taken.left) == ["link: a link", "pipe: a pipe"]

    asyncio.run(once())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["made"]


def test_only_the_folder_for_data_can_be_written_and_nothing_in_it_is_started(place: Place) -> None:
    code = """
import os, shutil, subprocess
for path in ("/x", "/etc/x", "/usr/x", "/tmp/x", "/dev/x", "/var/tmp/x", "/dev/shm/x"):
    try:
        open(path, "w")
        print(path)
    except OSError:
        pass
shutil.copy("/bin/true", "true")
try:
    print(subprocess.call(["./true"]))
except OSError as error:
    print(error.errno)
try:
    open("large", "wb").write(bytes(2 << 20))
except OSError as error:
    print(error.errno)
"""
    # The mounts of an engine that its user may write are Landlock's to close; here there is no such rule.
    shared = {"docker": b"/dev/shm/x\n", "apptainer": b""}[place.name]
    assert place.run(code).stdout.removeprefix(b"/tmp/x\n/var/tmp/x\n").removeprefix(shared) == b"13\n28\n"


def test_a_folder_of_the_machine_is_seen_where_it_is_bound(
    place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        Path(folder, "main.py").write_text("print('seen')")
        code = "exec(open('/app/skills/main.py').read()); open('/app/skills/x', 'w')"
        ended = place.run(code, binds=(Bind(source=folder, target="/app/skills"),))
    assert ended.stdout == b"seen\n"
    assert b"Errno 30" in ended.stderr


def test_what_is_required_and_cannot_be_applied_starts_nothing(place: Place) -> None:
    with pytest.raises(Unsupported, match="landlock: ABI version 99 is needed"):
        place.run("print(1)", landlock=Landlock(handled_fs=1, minimum_abi=99))


def test_a_program_that_is_not_there_is_an_error(place: Place) -> None:
    async def once() -> None:
        started = start_docker if place.name == "docker" else start_apptainer
        async with await started(place.specification, ["/no/such"], **place.options) as run:
            run.go()
            await run.wait()

    with pytest.raises(Exception, match="no such program|No such file"):
        asyncio.run(once())


@pytest.mark.parametrize(
    ("argv", "changes"), [(["python3"], {}), ([PYTHON], {"uid": None}), ([PYTHON], {"files": (("/x", b""),)})]
)
def test_what_makes_no_sense_there_is_refused(place: Place, argv: Sequence[str], changes: dict[str, Any]) -> None:
    started: Callable[..., Any] = start_docker if place.name == "docker" else start_apptainer
    wanted = dataclasses.replace(place.specification, **changes)
    with pytest.raises(UsageError):
        asyncio.run(started(wanted, argv, **place.options))


def test_nothing_is_left_of_a_container_that_was_closed(docker_place: Place) -> None:
    def there() -> set[str]:
        found: list[dict[str, Any]] = docker_engine.engine().client.containers(all=True)
        return {str(each["Id"]) for each in found}

    async def once() -> None:
        async with await docker_place.start("print(1)"):
            assert there() > before  # and it is never told to begin

    before = there()
    asyncio.run(once())
    assert there() == before
