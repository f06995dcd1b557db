"""What a program asks the kernel for is seen from outside, and being seen changes no answer."""

from __future__ import annotations

import asyncio
import errno
import platform
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox import Limits
from hermes_exec_backends.sandbox.observe import NUMBERS, WatchSpec, decode_filter, evaluate_filter, observing_filter
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render.filter import build_filter
from tests.rigs.breadth import thorough
from tests.rigs.sandboxes import PYTHON, as_user, refusing, run_text, specification

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Require

X86 = 0xC000003E
SOCKET = 41 if platform.machine() == "x86_64" else 198
ALL = frozenset(NUMBERS["x86_64"])
TRIES = """
import errno, os, socket, subprocess
for name, act in {
    "inet": lambda: socket.socket(),
    "unix": lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock"),
    "secret": lambda: open("/home/x/.ssh/id_rsa"),
    "climbs": lambda: open("../home/x"),
    "program": lambda: subprocess.run(["/usr/bin/true", "curl"], check=True),
    "signal": lambda: os.kill(os.getpid(), 0),
    "own": lambda: open("/app/data/x", "w").write("x"),
}.items():
    try:
        act()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
"""
ANSWERS = "inet EPERM\nunix ENOENT\nsecret ENOENT\nclimbs ENOENT\nprogram done\nsignal done\nown done\n"


@pytest.fixture
def seen(require: Require, somebody: int) -> Callable[..., dict[str, Any]]:
    require("bwrap", "makes the sandbox")

    def seen(text: str, watch: WatchSpec | None, **limits: Any) -> dict[str, Any]:
        confinement = specification(uid=somebody, seccomp=refusing())
        return asyncio.run(run_text(confinement, text, limits=Limits(wall_s=50, **limits), watch=watch))

    return seen


def everything(linger_s: float = 5.0) -> WatchSpec:
    return WatchSpec(ALL, lambda _: True, linger_s)


def words(acts: list[dict[str, Any]], name: str) -> list[tuple[str, ...]]:
    return [tuple(each["texts"]) for each in acts if each["name"] == name]


def test_being_seen_changes_no_answer(seen: Callable[..., dict[str, Any]]) -> None:
    assert seen(TRIES, None)["stdout"] == ANSWERS
    assert seen(TRIES, everything())["stdout"] == ANSWERS


def test_what_is_refused_and_what_is_watched_is_seen(seen: Callable[..., dict[str, Any]]) -> None:
    acts = seen(TRIES, everything())["acts"]
    assert [each["arguments"][0] for each in acts if each["refused"] and each["call"] == SOCKET] == [2]
    opened = {path for (path,) in words(acts, "openat") + words(acts, "open")}
    assert {"/home/x/.ssh/id_rsa", "/home/x", "/app/data/x"} <= opened
    assert ("/usr/bin/true", "/usr/bin/true", "curl") in words(acts, "execve")
    assert any(address.startswith("/run/docker.sock") for (address,) in words(acts, "connect"))


@thorough
def test_an_ordinary_user_sees_as_much(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")
    told = as_user(somebody, TRIES, watched=sorted(ALL))
    assert told["stdout"] == ANSWERS
    assert any(each["refused"] and each["call"] == SOCKET for each in told["acts"])
    assert ("/usr/bin/true", "/usr/bin/true", "curl") in words(told["acts"], "execve")


def test_children_and_those_that_let_go_are_seen(seen: Callable[..., dict[str, Any]]) -> None:
    text = "import os, socket\nif not os.fork():\n os.setsid()\n try: socket.socket(16)\n except OSError: os._exit(0)\n"
    text += "os.wait()"
    assert [each["arguments"][0] for each in seen(text, everything())["acts"] if each["refused"]] == [16]


@thorough
def test_a_process_with_nearly_all_descriptors_is_seen(seen: Callable[..., dict[str, Any]]) -> None:
    hoards = "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\nkept = []\n"
    hoards += "try:\n while True: kept.append(os.open('/dev/null', 0))\nexcept OSError: pass"
    nothing = WatchSpec(ALL, lambda _: False)
    ((there, most),) = [tuple(each["arguments"]) for each in seen(hoards, nothing)["acts"]]
    assert there > 200
    assert most == 256
    assert not seen("for n in range(600): open('/dev/null').close()", nothing)["acts"]


def test_what_the_loader_is_told_is_seen(seen: Callable[..., dict[str, Any]]) -> None:
    text = "import subprocess\nsubprocess.run(['/usr/bin/true'], env={'LD_PRELOAD': '/app/data/x.so', 'A': 'b'})"
    acts = seen(text, everything())["acts"]
    assert ("/usr/bin/true", "/usr/bin/true", "LD_PRELOAD=/app/data/x.so") in words(acts, "execve")


def test_links_and_new_names_are_seen(seen: Callable[..., dict[str, Any]]) -> None:
    text = "import os\nos.chdir('/app/data')\nos.symlink('/etc', 'e')\nos.mkdir('d')\nos.rename('d', '../data/f')"
    acts = seen(text, everything())["acts"]
    assert ("/app/data/e", "/etc") in words(acts, "symlink") + words(acts, "symlinkat")
    assert ("/app/data/d", "/app/data/f") in words(acts, "rename") + words(acts, "renameat2")


def test_many_harmless_acts_hide_none(seen: Callable[..., dict[str, Any]]) -> None:
    text = "for n in range(600):\n open('/dev/null').close()\ntry: open('/home/x')\nexcept OSError: pass"
    acts = seen(text, WatchSpec(ALL, lambda act: "/home" in str(act.texts)))["acts"]
    assert {each["texts"] for each in acts if each["name"] == "openat"} == {("/home/x",)}


def test_nobody_who_answers_means_that_it_is_refused(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")
    text = "import sys\nprint('on', flush=True)\nsys.stdin.read()\n" + TRIES

    async def within() -> int | None:
        confinement = specification(uid=somebody, seccomp=refusing())
        argv = [PYTHON, "-I", "-c", text]
        async with await start(confinement, argv, limits=Limits(wall_s=45), watch=everything()) as run:
            assert run.observer is not None
            run.go()
            run.observer.close()  # before it has answered anything
            return (await run.wait()).exit.code

    with pytest.raises(Exception, match="could not be started"):  # not even the program itself
        asyncio.run(within())


def test_what_outlives_a_program_is_told(seen: Callable[..., dict[str, Any]]) -> None:
    text = "import subprocess as s\ns.Popen(['/usr/bin/sleep', '300'], start_new_session=True, stdout=-3, stderr=-3)"
    assert seen(text, everything(linger_s=0.2))["left"] == ("/usr/bin/sleep 300",)
    assert seen(text, None)["left"] == ()


def test_what_ends_by_itself_soon_is_not_left(seen: Callable[..., dict[str, Any]]) -> None:
    text = "import subprocess as s\ns.Popen(['/usr/bin/sleep', '0.3'], start_new_session=True, stdout=-3, stderr=-3)"
    assert seen(text, everything(linger_s=40))["left"] == ()


def test_a_program_without_a_filter_cannot_be_seen(require: Require, somebody: int) -> None:
    require("bwrap", "makes the sandbox")
    with pytest.raises(UsageError):
        asyncio.run(run_text(specification(uid=somebody), "", watch=everything()))


def test_the_answer_is_what_the_filter_says() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the numbers here are those of x86_64")
    wanted = build_filter(load_policy("skill-validate"))
    assert wanted is not None
    steps = decode_filter(refusing())
    calls = {
        "read": 0, "open": 2, "openat": 257, "socket": 41, "socketpair": 53, "mmap": 9, "clone": 56, "chmod": 90,
        "ptrace": 101, "clone3": 435, "openat2": 437, "mount": 165, "keyctl": 250, "personality": 135,
    }  # fmt: skip
    samples = [(0,) * 6, (1, 1, 0, 0, 0, 0), (2, 1, 7, 0o4755, 0, 0), (1 << 32 | 1, 0o100, 0o100, 0o4755, 1, 1)]
    samples += [(0x10000000, 0o4755, 0o4755, 0, 0, 0), (0xFFFFFFFF, 2, 3, 4, 5, 6), (16, 3, 6, 6, 6, 6)]
    for name, number in calls.items():
        for given in samples:
            said = wanted.answer(name, given)
            assert evaluate_filter(steps, number, X86, given) == (0x50000 | said if said else 0x7FFF0000), (name, given)


def test_only_what_is_refused_asks_beside_what_is_watched() -> None:
    steps = decode_filter(observing_filter(refusing(), frozenset({"execve"})))
    numbers = NUMBERS[platform.machine()]
    machine = X86 if platform.machine() == "x86_64" else 0xC00000B7
    assert evaluate_filter(steps, SOCKET, machine, (2, 0, 0, 0, 0, 0)) == 0x7FC00000
    assert evaluate_filter(steps, SOCKET, machine, (1, 0, 0, 0, 0, 0)) == 0x7FFF0000
    assert evaluate_filter(steps, numbers["execve"], machine, (0,) * 6) == 0x7FC00000
    assert evaluate_filter(steps, numbers["openat"], machine, (0,) * 6) == 0x7FFF0000
    assert evaluate_filter(steps, 435, machine, (0,) * 6) == 0x50000 | errno.ENOSYS
    assert (
        evaluate_filter(steps, numbers["execve"], 0x40000003, (0,) * 6) == 0x80000000
    )  # a 32-bit call still ends the process
