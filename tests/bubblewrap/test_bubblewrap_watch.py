"""A program in a sandbox is watched, limited and killed whole from outside, and its files are collected."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import TransferError, UsageError
from hermes_exec.guest.limits import cgroups
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox import Limits, Tmpfs
from hermes_exec_backends.sandbox.collect import collect
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.processes import with_mark
from tests.rigs.sandboxes import PYTHON, run_text, specification

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hermes_exec_backends.sandbox.run import Run
    from tests.conftest import Require


@pytest.fixture
def run(require: Require, somebody: int) -> Callable[..., dict[str, Any]]:
    require("bwrap", "makes the sandbox")

    def run(text: str, into: Path | None = None, **limits: Any) -> dict[str, Any]:
        return asyncio.run(run_text(specification(uid=somebody), text, limits=Limits(**limits), into=into))

    return run


@pytest.fixture
def held(require: Require, somebody: int) -> Callable[..., Any]:
    """``held(TEXT, WHAT)``: what ``await WHAT(run)`` gives for a sandbox that is held with a Python text in it."""
    require("bwrap", "makes the sandbox")

    def held(text: str, what: Callable[[Run], Coroutine[Any, Any, Any]], **fields: Any) -> Any:
        async def within() -> Any:
            words = [PYTHON, "-I", "-c", text]
            async with (
                asyncio.timeout(PATIENCE_S),
                await start(specification(uid=somebody, **fields), words, limits=Limits(wall_s=45)) as run,
            ):
                return await what(run)

        return asyncio.run(within())

    return held


DEAF = """
import os, signal
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
os.kill(os.getpid(), signal.SIGSTOP)
"""
LONG = "import time; time.sleep(600)"


@pytest.mark.parametrize(
    ("limit", "text", "limits"),
    [
        ("wall", LONG, {"wall_s": 1.0}),
        ("wall", DEAF, {"wall_s": 1.0}),
        ("output", "import os\nwhile True: os.write(1, b'x' * 65536)", {"output": 300_000}),
        ("output", "import os\nwhile True: os.write(2, b'x' * 65536)", {"output": 300_000}),
        ("memory", "data = [bytearray(b'x' * 10_000_000) for _ in range(60)]\n" + LONG, {"memory": 150 << 20}),
        ("processes", "import os\nfor _ in range(40):\n if os.fork() == 0: break\n" + LONG, {"processes": 10}),
        ("cpu", "while True: pass", {"cpu_s": 1.0}),
    ],
    ids=["wall", "wall, ignoring signals", "output", "errors", "memory", "processes", "cpu"],
)  # fmt: skip
def test_each_limit_ends_it_and_is_named(
    run: Callable[..., dict[str, Any]], limit: str, text: str, limits: dict[str, Any]
) -> None:
    seen = run(text, **{"wall_s": 45, **limits})
    assert seen["limit"] == limit
    assert len(seen["stdout"]) + len(seen["stderr"]) <= limits.get("output", 3000)


@pytest.mark.parametrize("limits", [{"memory": 1 << 30}, {"processes": 30}, {"output": 100_000}, {"cpu_s": 100}])
def test_what_stays_below_its_limits_is_not_touched(run: Callable[..., dict[str, Any]], limits: dict[str, Any]) -> None:
    seen = run("import os\nfor _ in range(5):\n if os.fork() == 0: os._exit(0)\nprint('x' * 50_000)", **limits)
    assert (seen["exit"], seen["limit"], len(seen["stdout"])) == ((0, None), "", 50_001)


BUSY = """
import os
for _ in range(3):
    if os.fork() == 0: break
while True: pass
"""


def test_no_more_processors_are_busy_than_allowed(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")
    homes = cgroups.find((cgroups.CPUS,))
    if cgroups.CPUS not in homes:
        pytest.skip("needs a control group for processors. Try: run the tests as root")
    home = homes[cgroups.CPUS]

    async def held_back() -> str:
        limits = Limits(wall_s=60, cpus=0.1)
        async with await start(specification(uid=somebody), [PYTHON, "-I", "-c", BUSY], limits=limits) as run:
            controller = "cpu" if home.version == 1 else ""
            paths = dict(line.split(":", 2)[1:] for line in run.facts.cgroup)
            (path,) = (path for names, path in paths.items() if controller in names.split(","))
            file = Path(home.folder, path.rpartition("/")[2], "cpu.stat")
            assert Path(file.parent, home.file(cgroups.CPUS)).read_text().split()[0] == "10000"
            run.go()
            while not cgroups.counter(str(file), b"nr_throttled"):
                await asyncio.sleep(0.01)
            return run.limit_enforcers["cpus"]

    assert asyncio.run(held_back()) == home.enforcer


def test_processors_that_nothing_bounds_are_no_limit_that_is_said_to_hold(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: bytes) -> dict[str, cgroups.CgroupParent]:
        return {}

    monkeypatch.setattr("hermes_exec_backends.sandbox.bounds._homes", none)
    seen = run("print(1)", cpus=1.0, memory=1 << 30)
    assert (seen["exit"], seen["limit"]) == ((0, None), "")
    assert seen["enforcers"] == {"memory": "watchdog"}


LEAVES = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv('/bin/sleep', ['sleep', '{mark}'])
        os._exit(0)
print('in', flush=True)
{then}
"""


@pytest.mark.parametrize("then", ["", LONG], ids=["when it ends", "when it is killed"])
def test_nothing_that_it_started_is_left(held: Callable[..., Any], then: str) -> None:
    mark = str(random.randrange(10**8, 10**9))

    async def until_gone(run: Run) -> None:
        run.go()
        if then:
            while not with_mark(mark):
                await asyncio.sleep(0.01)
            run.kill()
        await run.wait()
        assert with_mark(mark) == []

    held(LEAVES.format(mark=mark, then=then), until_gone)


def test_a_sandbox_that_was_never_begun_leaves_nothing(held: Callable[..., Any]) -> None:
    async def look(run: Run) -> tuple[int, int]:
        return run.facts.pid, run.facts.namespaces["pid"]

    pid, space = held(LONG, look)
    with contextlib.suppress(FileNotFoundError):  # the number may have passed to another process
        assert os.stat(f"/proc/{pid}/ns/pid").st_ino != space


def test_closing_ends_what_still_runs(held: Callable[..., Any]) -> None:
    mark = str(random.randrange(10**8, 10**9))

    async def begin(run: Run) -> None:
        run.go()
        while not with_mark(mark):
            await asyncio.sleep(0.01)

    held(f"import os; os.execv('/bin/sleep', ['sleep', '{mark}'])", begin)
    assert with_mark(mark) == []


def test_no_descriptor_and_no_control_group_is_left(held: Callable[..., Any]) -> None:
    async def all_of_it(run: Run) -> None:
        run.go()
        await run.wait()

    held("", all_of_it)
    before = set(os.listdir("/proc/self/fd"))
    held("", all_of_it)
    assert set(os.listdir("/proc/self/fd")) == before
    assert [path for path in Path("/sys/fs/cgroup").glob(f"*/**/hx-*-{os.getpid()}-*") if path.is_dir()] == []


def test_a_program_begins_once(held: Callable[..., Any]) -> None:
    async def twice(run: Run) -> None:
        with pytest.raises(UsageError, match="has not begun"):
            await run.wait()
        run.go()
        with pytest.raises(UsageError, match="has begun already"):
            run.go()
        await run.wait()

    held("", twice)


WRITES = """
import os, socket
os.chdir('/app/data')
open('plain', 'w').write('hello')
os.makedirs('folder/below')
open('folder/below/file', 'w').write('deep')
os.symlink('/etc/passwd', 'link')
os.symlink('/etc', 'folder/link')
os.mkfifo('pipe')
socket.socket(socket.AF_UNIX).bind('socket')
open('shut', 'w').write('read me')
os.chmod('shut', 0)
os.mkdir('closed')
open('closed/in', 'w').write('me too')
os.chmod('closed', 0)
open('setuid', 'w').close()
os.chmod('setuid', 0o4755)
open(os.fsencode('odd') + b'\\xff\\n', 'w').close()
"""


def test_files_are_collected_and_no_link_is_followed(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    seen = run(WRITES, into=tmp_path / "out")
    assert seen["exit"] == (0, None), seen["stderr"]
    found = {os.fsencode(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    expected = {b"plain", b"folder", b"folder/below", b"folder/below/file", b"shut", b"closed", b"closed/in", b"setuid"}
    assert found == {*expected, b"odd\xff\n"}
    assert (tmp_path / "out/closed/in").read_text() == "me too"
    assert {path.stat().st_mode & 0o7777 for path in (tmp_path / "out").rglob("*") if path.is_file()} == {0o600}
    left = seen["collected"]["left"]
    assert sorted(left) == ["folder/link: a link", "link: a link", "pipe: a pipe", "socket: a socket"]
    assert seen["collected"]["bytes"] == len("hellodeepread meme too")


def test_nothing_is_collected_while_it_runs_or_from_elsewhere(held: Callable[..., Any], tmp_path: Path) -> None:
    async def collect_early(run: Run) -> None:
        run.go()
        with pytest.raises(UsageError, match="once the program has ended"):
            run.collect("/app/data", tmp_path / "out", max_bytes=10)
        run.kill()
        await run.wait()
        with pytest.raises(UsageError, match="'/etc' is not a folder"):
            run.collect("/etc", tmp_path / "out", max_bytes=10)

    held(LONG, collect_early)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "bounds", "why"),
    [
        ("open('/app/data/x', 'w').write('x' * 1000)", {"max_bytes": 999}, "more than 999 bytes"),
        (
            "import os; open('/app/data/x', 'w'); os.truncate('/app/data/x', 1 << 40)",
            {"max_bytes": 5000},
            "more than 5000",
        ),
        ("[open(f'/app/data/{n}', 'w') for n in range(9)]", {"max_bytes": 9, "max_files": 8}, "more than 8 files"),
        ("import os\nfor n in range(9): os.symlink('x', f'/app/data/{n}')", {"max_bytes": 9, "max_files": 8}, "links"),
        (
            "import os\nos.chdir('/app/data')\nfor _ in range(99): os.mkdir('d'); os.chdir('d')",
            {"max_bytes": 9},
            "deeper",
        ),
    ],
    ids=["bytes", "holes", "files", "links", "depth"],
)
def test_what_is_collected_is_bounded(
    held: Callable[..., Any], tmp_path: Path, text: str, bounds: dict[str, int], why: str
) -> None:
    async def collect_all(run: Run) -> None:
        run.go()
        await run.wait()
        with pytest.raises(TransferError, match=why):
            run.collect("/app/data", tmp_path / "out", **bounds)

    held(text, collect_all, tmpfs=(Tmpfs(target="/app/data", size=1 << 20, inodes=200),))


def test_collecting_never_writes_into_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "target").symlink_to(tmp_path / "source")
    source = os.open(tmp_path / "source", os.O_RDONLY)
    try:
        with pytest.raises(FileExistsError):
            collect(source, tmp_path / "target", max_bytes=1, max_files=1)
    finally:
        os.close(source)
