"""One program in one sandbox, started from outside: what it gets, what it cannot, and what is seen of it."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import os
import platform
import shutil
import signal
import socket
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import PlaceUnavailable, Unsupported, UsageError
from hermes_exec.guest.core import process_tree
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox import Bind, Landlock, Limits, PathRule, Tmpfs
from hermes_exec_backends.sandbox.control import FLAGS
from tests.rigs.sandboxes import PYTHON, as_user, refusing, run_text, specification

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_backends.sandbox.procfs import ProcessFacts
    from hermes_exec_backends.sandbox.run import ProgramResult
    from tests.conftest import Require

READ, EXECUTE = 1 << 2 | 1 << 3, 1 << 0
ALL_RIGHTS = (1 << 13) - 1
HAS_APPARMOR = Path("/sys/module/apparmor/parameters/enabled").exists()
TRY = """
import errno, os
def attempt(what):
    try:
        what()
    except OSError as error:
        print(errno.errorcode[error.errno])
    else:
        print("done")
"""


@pytest.fixture
def inside(require: Require, somebody: int) -> Callable[..., dict[str, Any]]:
    """``inside(TEXT, stdin=b"", limits=None, **fields)`` runs a Python text as an ordinary user started by root."""
    require("bwrap", "makes the sandbox")

    def run(text: str, stdin: bytes = b"", limits: Limits | None = None, **fields: Any) -> dict[str, Any]:
        confinement = specification(uid=somebody, **fields)
        return asyncio.run(run_text(confinement, text, stdin=stdin, limits=limits))

    return run


Inside = Any
"""Takes a text and fields of a specification."""


def tries(inside: Inside, text: str, **fields: Any) -> list[str]:
    seen = inside(TRY + text, **fields)
    assert seen["exit"] == (0, None), seen["stderr"]
    words: list[str] = seen["stdout"].split()
    return words


def test_a_program_gets_what_is_specified_and_nothing_else(inside: Inside) -> None:
    text = "import os, sys; print(dict(os.environ), os.getcwd(), sys.stdin.read(), sorted(os.listdir('/')))"
    seen = inside(text, stdin=b"input", env=(("A", "b c"), ("LC_ALL", "C")), cwd="/app/data", files=(("/etc/x", b"y"),))
    assert seen["stdout"].startswith("{'A': 'b c', 'LC_ALL': 'C'} /app/data input ")
    assert set(seen["stdout"].rpartition("[")[2].strip("]\n").replace("'", "").split(", ")) <= {
        "app", "bin", "dev", "etc", "lib", "lib64", "proc", "usr",
    }  # fmt: skip


def test_small_files_are_there_and_read_only(inside: Inside) -> None:
    text = (
        "print(open('/etc/x').read()); attempt(lambda: open('/etc/x', 'a')); attempt(lambda: os.chmod('/etc/x', 0o666))"
    )
    assert tries(inside, text, files=(("/etc/x", b"content"),)) == ["content", "EACCES", "EROFS"]


def test_it_has_three_descriptors_and_no_signal_is_changed(inside: Inside) -> None:
    look = 'ls /proc/self/fd; exec grep -E "^Sig(Ign|Blk)" /proc/self/status'
    text = f"import os; os.execv('/bin/sh', ['sh', '-c', {look!r}])"
    lines = inside(text)["stdout"].splitlines()
    assert lines[:4] == ["0", "1", "2", "3"]  # 3: the folder that ls reads
    ignored = {line.split()[0]: int(line.split()[1], 16) for line in lines[4:]}
    python = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1  # which the program itself, a Python, ignores
    assert ignored == {"SigBlk:": 0, "SigIgn:": python}


@pytest.mark.parametrize(
    ("text", "exit"),
    [("raise SystemExit(3)", (3, None)), ("import os; os.kill(os.getpid(), 15)", (None, 15)), ("", (0, None))],
)
def test_its_end_is_told(inside: Inside, text: str, exit: tuple[int | None, int | None]) -> None:
    assert inside(text)["exit"] == exit


def test_folders_in_memory_are_bounded_and_nothing_starts_from_them(inside: Inside) -> None:
    text = """
attempt(lambda: open('/app/data/large', 'wb').write(b'x' * 2_000_000))
os.unlink('/app/data/large')
def many():
    for n in range(100): open(f'/app/data/{n}', 'w').close()
attempt(many)
import shutil
shutil.rmtree('/app/data', ignore_errors=True)
attempt(lambda: shutil.copy('/usr/bin/env', '/app/data/env') and os.chmod('/app/data/env', 0o755))
attempt(lambda: os.execv('/app/data/env', ['env']))
"""
    folder = Tmpfs(target="/app/data", size=1 << 20, inodes=40)
    assert tries(inside, text, tmpfs=(folder,)) == ["ENOSPC", "ENOSPC", "done", "EACCES"]


def test_a_bound_folder_can_be_one_that_nothing_starts_from(inside: Inside) -> None:
    text = "attempt(lambda: os.execv('/other/env', ['env']))"
    source = Bind(source="/usr/bin", target="/other", executable=False)
    assert tries(inside, text, more_binds=(source,)) == ["EACCES"]


def test_the_whole_machine_can_be_bound_and_has_a_proc_of_its_own_all_the_same(inside: Inside) -> None:
    text = "import os; print(os.path.isdir('/etc/default'), os.getpid(), sorted(os.listdir('/dev'))[0])"
    folder = Tmpfs(target="/tmp", size=1 << 20, inodes=40)
    seen = inside(text, more_binds=(Bind(source="/", target="/"),), links=(), tmpfs=(folder,))
    assert seen["stdout"] == "True 2 fd\n", seen["stderr"]


def test_what_is_not_to_be_seen_is_covered(inside: Inside) -> None:
    text = "print(len(open('/proc/version').read()), os.listdir('/usr/share'))"
    assert inside("import os;" + text, masked=("/proc/version", "/usr/share", "/nowhere"))["stdout"] == "0 []\n"


def test_the_kernels_settings_and_the_root_are_read_only(inside: Inside) -> None:
    text = "attempt(lambda: open('/proc/sys/kernel/hostname', 'w')); attempt(lambda: os.mkdir('/x'))"
    text += "; attempt(lambda: os.mkdir('/dev/x'))"
    assert tries(inside, text)[0] in {"EROFS", "EACCES"}
    assert tries(inside, text)[1:] == ["EROFS", "EROFS"]


def test_process_1_can_be_neither_read_nor_written_nor_ended(inside: Inside) -> None:
    text = """
for name in ('mem', 'environ', 'maps'):
    attempt(lambda: open(f'/proc/1/{name}', 'rb').read(1))
attempt(lambda: open('/proc/1/mem', 'r+b'))
for number in (2, 9, 15, 19):
    os.kill(1, number)
print('alive')
"""
    assert tries(inside, text) == ["EACCES", "EACCES", "EACCES", "EACCES", "alive"]


def test_process_1_is_confined_before_the_program_may_begin(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")

    async def first() -> tuple[str, int]:
        confinement = specification(uid=somebody, seccomp=refusing())
        async with await start(confinement, [PYTHON, "-I", "-c", ""]) as run:
            folder = Path("/proc", str(process_tree.stat(run.facts.pid)[1]))
            return (folder / "status").read_text(), (folder / "mem").stat().st_uid

    status, owner = asyncio.run(first())
    assert "Seccomp:\t2\n" in status
    assert owner == 0  # and not of the sandbox's user: its memory is nobody's to open


def test_what_is_read_can_never_be_started(inside: Inside) -> None:
    if not _has_sealed_files():
        pytest.skip("needs memory files that are never started. Try: Linux 6.3")
    program = Path("/usr/bin/true").read_bytes()
    assert tries(inside, "attempt(lambda: os.execve(0, ['true'], {}))", stdin=program) == ["EACCES"]


@pytest.mark.parametrize("version", [importlib.util.MAGIC_NUMBER, b"none"], ids=["same", "other"])
def test_a_text_for_the_launchers_interpreter_is_begun_in_it_by_code_or_by_source(
    version: bytes, require: Require, somebody: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("bwrap", "makes the sandbox")
    monkeypatch.setattr("importlib.util.MAGIC_NUMBER", version)  # that of our interpreter
    text = f"import os, sys\ndef main(): print({version!r}, sys.argv, os.getpid(), dict(os.environ))\n"

    async def ran() -> ProgramResult:
        confinement = specification(uid=somebody, env=(("A", "b"),))
        async with await start(confinement, [PYTHON, FLAGS, text, "word"]) as run:
            run.go()
            return await run.wait()

    ended = asyncio.run(ran())
    assert ended.stdout.decode() == f"{version!r} ['-c', 'word'] 2 {{'A': 'b'}}\n", ended.stderr


@pytest.mark.parametrize("programs", [("bwrap", "setpriv"), ("bwrap",)], ids=["setpriv", "without"])
def test_root_becomes_the_user_with_no_group_of_its_own(
    programs: tuple[str, ...], require: Require, somebody: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def held() -> ProcessFacts:
        async with await start(specification(uid=somebody), ["/bin/false"]) as run:
            return run.facts

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # whoever it becomes has to start bwrap
        for program in programs:
            require(program, "makes the sandbox")
            Path(folder, program).symlink_to(shutil.which(program) or "")
        monkeypatch.setenv("PATH", folder)
        facts = asyncio.run(held())
    assert (facts.uids, facts.gids, facts.groups) == ((somebody,) * 4, (somebody,) * 4, ())
    assert set(facts.caps.values()) == {0}


def test_what_is_seen_from_outside_before_it_begins(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")

    async def look() -> None:
        async with await start(specification(uid=somebody), ["/bin/false"], limits=Limits(memory=100 << 20)) as run:
            facts = run.facts
            assert facts.no_new_privs
            assert set(facts.caps.values()) == {0}
            assert facts.uids == facts.gids == (somebody,) * 4
            assert facts.groups == ()
            assert facts.uid_map[0].split() == [str(somebody), str(somebody), "1"]
            own = {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in facts.namespaces}
            assert not set(own.values()) & set(facts.namespaces.values())
            (data,) = [line for line in facts.mounts if " /app/data " in line]
            assert {"rw", "nosuid", "nodev", "noexec"} <= set(data.split()[5].split(","))
            assert "size=1024k,nr_inodes=40" in data
            if run.limit_enforcers["memory"] != "watchdog":
                assert any("/hx-" in line for line in facts.cgroup)
            assert Path(f"/proc/{facts.pid}/cmdline").read_bytes().find(b"false") < 0  # it has not begun

    asyncio.run(look())


def _has_sealed_files() -> bool:
    try:
        os.close(os.memfd_create("any", 8))
    except OSError:
        return False
    return True


def deny_mkdir() -> bytes:
    """A filter of six instructions: mkdir and mkdirat fail with EDOM, everything else is allowed."""
    numbers = {"x86_64": (83, 258), "aarch64": (34, 34)}[platform.machine()]
    rows = [(0x20, 0, 0, 0), *((0x15, 2 - n, 0, number) for n, number in enumerate(numbers))]
    rows += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | errno.EDOM)]
    return b"".join(struct.pack("HBBI", *row) for row in rows)


def test_a_filter_holds_and_is_seen_from_outside(inside: Inside) -> None:
    seen = inside(TRY + "attempt(lambda: os.mkdir('/app/data/x'))", seccomp=deny_mkdir())
    assert seen["stdout"] == "EDOM\n"
    assert seen["facts"]["seccomp"] == 2
    assert seen["report"]["seccomp"] is True


def test_a_filter_that_the_kernel_refuses_ends_it_before_it_begins(inside: Inside) -> None:
    with pytest.raises(Unsupported, match="seccomp: Invalid argument"):
        inside("open('/app/data/x', 'w')", seccomp=b"\xff" * 16)


@pytest.fixture
def landlock(require: Require) -> Landlock:
    """Rules that let programs start, and /app/data be used."""
    usable = _landlock_version() >= 1
    require("Landlock", "a kernel with it", usable=usable)
    paths = (
        PathRule(path="/usr", access=READ | EXECUTE),
        PathRule(path="/app/data", access=ALL_RIGHTS & ~EXECUTE),
        PathRule(path="/dev/null", access=1 << 1 | 1 << 2),
    )
    return Landlock(handled_fs=ALL_RIGHTS, paths=paths, handled_net=3, scoped=3)


def _landlock_version() -> int:
    import ctypes

    version: int = ctypes.CDLL(None).syscall(444, None, 0, 1)
    return version


def test_landlock_holds_where_nothing_else_does(inside: Inside, landlock: Landlock) -> None:
    text = """
attempt(lambda: open('/app/data/x', 'w'))
attempt(lambda: open('/dev/null', 'w'))
attempt(lambda: open('/open/x', 'w'))
attempt(lambda: os.listdir('/'))
attempt(lambda: os.listdir('/proc'))
"""
    open_folder = Tmpfs(target="/open", size=1 << 20, inodes=40)
    tmpfs = (*specification().tmpfs, open_folder)
    assert tries(inside, text, landlock=landlock, tmpfs=tmpfs) == ["done", "done", "EACCES", "EACCES", "EACCES"]
    assert tries(inside, text, tmpfs=tmpfs) == ["done"] * 5


@pytest.mark.skipif(_landlock_version() < 4, reason="this kernel's Landlock knows no ports")
def test_landlock_bounds_ports_where_the_network_is_shared(inside: Inside, landlock: Landlock) -> None:
    namespaces = frozenset({"user", "pid", "ipc", "uts", "cgroup"})
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"import socket; attempt(lambda: socket.create_connection(('127.0.0.1', {port})))"
        assert tries(inside, text, namespaces=namespaces, landlock=landlock) == ["EACCES"]
        assert tries(inside, text, namespaces=namespaces) == ["done"]


def test_landlock_that_is_too_old_ends_it_unless_that_is_allowed(inside: Inside, landlock: Landlock) -> None:
    newer = Landlock(handled_fs=landlock.handled_fs, paths=landlock.paths, minimum_abi=99)
    with pytest.raises(Unsupported, match="landlock: ABI version 99 is needed"):
        inside("", landlock=newer)
    seen = inside("", landlock=newer, required=frozenset[str]())
    assert list(seen["report"]["lacking"]) == ["landlock"]


def test_a_rule_for_a_path_that_is_not_there_ends_it(inside: Inside) -> None:
    rules = Landlock(handled_fs=ALL_RIGHTS, paths=(PathRule(path="/nowhere", access=READ),))
    with pytest.raises(Unsupported, match="landlock: /nowhere: No such file"):
        inside("", landlock=rules)


@pytest.mark.skipif(HAS_APPARMOR, reason="this kernel has AppArmor")
def test_a_profile_of_apparmor_that_cannot_be_had_ends_it_unless_that_is_allowed(inside: Inside) -> None:
    with pytest.raises(Unsupported, match="apparmor: "):
        inside("", apparmor="hermes-test")
    seen = inside("print('ran')", apparmor="hermes-test", required=frozenset({"seccomp"}))
    assert (seen["stdout"], list(seen["report"]["lacking"]), seen["report"]["apparmor"]) == ("ran\n", ["apparmor"], "")


def test_bounds_of_setrlimit_hold_and_are_told(inside: Inside) -> None:
    text = (
        "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    seen = inside(text, rlimits=(("nofile", 32, 64), ("core", 0, 0)))
    assert seen["stdout"] == "(32, 64) (0, 0)\n"
    assert seen["report"]["rlimits"] == {"nofile": (32, 64), "core": (0, 0)}
    with pytest.raises(Unsupported, match="rlimits: nonsense"):
        inside("", rlimits=(("nonsense", 1, 1),))


def test_a_program_that_is_not_there_is_an_error_and_not_a_result(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")

    async def run() -> None:
        async with await start(specification(uid=somebody), ["/usr/bin/no-such-program"]) as run:
            run.go()
            await run.wait()

    with pytest.raises(PlaceUnavailable, match="could not be started.*No such file"):
        asyncio.run(run())


def test_a_folder_that_cannot_be_bound_is_named(inside: Inside) -> None:
    with pytest.raises(PlaceUnavailable, match="/no/such/folder"):
        inside("", more_binds=(Bind(source="/no/such/folder", target="/x"),))


def test_an_interpreter_that_is_not_there_is_named(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    with pytest.raises(PlaceUnavailable, match="no-python"):
        asyncio.run(start(specification(), [PYTHON], python="/usr/bin/no-python"))


def test_only_root_can_be_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1)
    with pytest.raises(UsageError, match="only root"):
        asyncio.run(start(specification(uid=61999), [PYTHON]))


def test_an_ordinary_user_has_all_of_it(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")
    with tempfile.TemporaryDirectory(prefix="hx-") as made:  # pytest's own folders are closed to other users
        folder = Path(made)
        os.chown(folder, somebody, somebody)
        text = "import os; open('/app/data/made', 'w').write('x'); os.symlink('/etc/passwd', '/app/data/link')"
        seen = as_user(somebody, text + "; attempt = print(os.getuid())", into=str(folder / "collected"))
        assert (seen["exit"], seen["stdout"]) == ([0, None], f"{somebody}\n")
        assert set(seen["facts"]["caps"].values()) == {0}
        assert (seen["collected"]["files"], seen["collected"]["left"]) == (1, ["link: a link"])
        assert (folder / "collected" / "made").read_text() == "x"


def test_an_ordinary_users_limits_hold(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")
    seen = as_user(somebody, "data = b'x' * 500_000_000\nimport time; time.sleep(50)", memory=100 << 20, wall_s=40)
    assert seen["limit"] == "memory"
