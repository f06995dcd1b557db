"""``backends``, ``doctor``, ``log`` and ``bench``."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.cli.checks import check_limits
from hermes_exec.cli.cleanup import reap_guests
from hermes_exec.config.registry import BUILT_INS
from hermes_exec.terminal.limits import Enforcement, Enforcer
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import thorough
from tests.rigs.processes import argv, children, read, started_as

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

Running = Callable[[str], list[int]]

CRASHING = """
import asyncio, os, sys
import hermes_exec
from hermes_exec_backends.local import LocalBackend

async def main():
    terminal = await hermes_exec.open(LocalBackend(), audit=False)
    shell = terminal.stream("setsid NAP & (NAP &) ; while :; do NAP; done".replace("NAP", sys.argv[1]))
    program = terminal.stream(["sh", "-c", "setsid NAP & NAP; true".replace("NAP", sys.argv[2])])
    job = await terminal.start("true")
    async with shell, program:
        print(terminal._context.carrier.link.guest["folder"], flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


def test_backends_tells_of_every_kind(cli: Cli) -> None:
    told = {each["type"]: each for each in cli.json("backends", "--json")}
    assert set(told) >= set(BUILT_INS)
    assert told["local"]["usable"]
    assert all(check["detail"] for each in told.values() for check in each["checks"])


def test_backends_tells_what_each_kind_can(cli: Cli) -> None:
    told = {each["type"]: each["features"] for each in cli.json("backends", "--json")}
    assert (told["local"], told["slurm"], told["singularity"]) == ([], ["gpu"], ["gpu"])


def test_backends_is_columns_on_a_pipe(cli: Cli) -> None:
    lines = cli("backends").stdout.decode().splitlines()
    assert lines[0].split() == ["TYPE", "USABLE", "CAN", "WHY", "TRY"]
    assert ["local", "yes"] in [line.split()[:2] for line in lines]


def test_what_cannot_be_used_has_a_remedy(cli: Cli) -> None:
    for each in cli.json("backends", "--json"):
        for check in each["checks"]:
            assert check["status"] == "ok" or check["remedy"], check


def test_doctor_finds_this_machine_in_order(cli: Cli) -> None:
    done = cli("doctor", "--json")
    checks = {(kind["type"], check["name"]): check for kind in json.loads(done.stdout) for check in kind["checks"]}
    assert done.returncode == 0
    assert checks["hermes-exec", "python"]["status"] == "ok"
    assert checks["hermes-exec", "configuration"]["status"] == "ok"


def test_doctor_tells_of_a_wrong_configuration(cli: Cli) -> None:
    cli.configure('[backends.bad]\ntype = "local"\nlogn = true\n')
    done = cli("doctor")
    assert done.returncode == 1
    assert b"logn" in done.stdout


def test_doctor_gives_checks_that_are_fine_one_line(cli: Cli) -> None:
    cli.configure("")
    short, whole = (cli("doctor", *words) for words in ((), ("--all",)))
    lines = [line.split() for line in short.stdout.decode().splitlines()]
    assert (short.returncode, whole.returncode) == (0, 0)
    assert [line[1:4] for line in lines if line[0] == "local"] == [["3", "checks", "ok"]]
    assert all(b" " + kind + b" " in short.stdout for kind in (b"missing", b"warning") if kind in whole.stdout)
    rows = [[line.split()[0] for line in done.stdout.splitlines() if b" ok " in line] for done in (short, whole)]
    assert rows[0].count(b"hermes-exec") == 1
    assert rows[1].count(b"hermes-exec") > 2
    assert cli("doctor", "-v").stdout.count(b"\n") == whole.stdout.count(b"\n")


def test_doctor_opens_the_place_it_is_asked_about(cli: Cli) -> None:
    told = cli.json("doctor", "local", "--json")
    checks = {check["name"]: check for kind in told for check in kind["checks"]}
    assert {"open", "command", "capabilities", "limits"} <= set(checks)


def test_doctor_says_ok_of_limits_only_if_each_is_enforced() -> None:
    whole = Enforcement(Enforcer.RLIMIT, Enforcer.CGROUP_V1, Enforcer.CGROUP_V1, Enforcer.RLIMIT, Enforcer.RLIMIT)
    check = check_limits(whole)
    assert check.status == "ok"
    assert check.detail == "cpu, file_size, open_files by rlimit; memory, processes by cgroup v1"
    check = check_limits(replace(whole, processes=Enforcer.NONE, cpu=Enforcer.NONE))
    assert check.status == "warning"
    assert "nothing enforces cpu, processes: a command with this limit is refused" in check.detail
    assert "none" not in check.detail
    assert check.remedy


def test_doctor_says_why_a_place_cannot_be_opened(cli: Cli) -> None:
    cli.configure('[backends.here]\ntype = "local"\npython = "/no/such/python"\ncarrier = "guest"\n')
    done = cli("doctor", "here")
    assert done.returncode == 1
    assert b"/no/such/python" in done.stdout


def crashed_guest(in_shell: str, of_program: str) -> str:
    """The name of a guest that was killed together with its keeper while it had much to do."""
    argv = [sys.executable, "-I", "-c", CRASHING, in_shell, of_program]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    folder = child.stdout.readline().decode().strip()
    name = re.fullmatch(r".*/hx-([0-9a-f]{16})", folder)
    assert name is not None
    Path(folder, "home").unlink()  # or the next guest of any other test removes it
    keeper, guest = guest_processes(child.pid)
    wait_for_programs({in_shell: 3, of_program: 2})
    watched = [os.pidfd_open(pid) for pid in (keeper, guest)]
    for pidfd in watched:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [])  # until then its door still opens
        os.close(pidfd)
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    return name[1]


def wait_for_programs(wanted: dict[str, int]) -> None:
    """Return once so many of each run."""
    wait_until(lambda: all(len(started_as(*words.split())) >= count for words, count in wanted.items()), within_s=40)


def guest_processes(orchestrator: int) -> tuple[int, int]:
    (keeper,) = children(orchestrator)
    guest = next(pid for pid in children(keeper) if argv(pid) == argv(keeper))
    return keeper, guest


def folders(name: str) -> list[Path]:
    bases = (Path(f"/run/user/{os.getuid()}"), Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"))
    return [path for base in bases if (path := base / f"hx-{name}").exists()]


@pytest.fixture
def program_nap(nap: str, running: Running) -> Generator[str]:
    """One more ``nap``; kills what is left of both, for what a crashed runner watched over is left."""
    yield f"{nap}1"
    for pid in running(nap):
        os.kill(pid, signal.SIGKILL)


def test_what_a_crashed_guest_left_is_removed(running: Running, nap: str, program_nap: str) -> None:
    name = crashed_guest(nap, program_nap)
    assert running(f"{nap} ")
    assert folders(name)
    swept = reap_guests({name})
    assert not running(f"{nap} ")
    assert not folders(name)
    assert all(not each.left for each in swept)
    assert any(each.ended for each in swept)  # some end by themselves once nobody reads them


@thorough
def test_reap_finds_programs_that_no_guest_watches_any_more(cli: Cli, require: Any) -> None:
    # Sweeping the real machine would get in the way of other tests that have crashed guests of theirs.
    alone = [require("unshare", "a machine of its own to sweep"), "-rpmf", "--mount-proc"]
    if subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel lets nobody have a machine of their own")
    argv = [*alone, sys.executable, "-I", __file__, "sweep"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=cli.env, timeout=50)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {each["folder"] == "" for each in told["swept"]} == {True, False}
    assert told["programs before"] > 0
    assert told["programs after"] == 0
    assert told["folders after"] == []


def test_reap_leaves_living_guests_alone(cli: Cli) -> None:
    child = cli.start("run", "echo ready; sleep 60")
    assert child.out.readline() == b"ready\n"
    (keeper,) = children(child.pid)
    assert b"<hx " in read(keeper, "cmdline")
    names = {path.name.removeprefix("hx-") for path in Path("/dev/shm").glob("hx-*")}
    before = {name: folders(name) for name in names}
    reap_guests(frozenset[str]())
    assert {name: folders(name) for name in names} == before
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130


def test_only_this_machine_is_swept(cli: Cli) -> None:
    done = cli("doctor", "docker:alpine", "--reap")
    assert done.returncode == 2


def test_log_tells_what_ran_and_how_it_ended(cli: Cli) -> None:
    cli("run", "echo hi")
    cli("run", "sh", "-c", "exit 3")
    cli("run", "--timeout", "0.2", "sleep 9")
    lines = cli("log").stdout.decode().splitlines()
    assert lines[0].split()[:4] == ["AT", "TARGET", "SESSION", "END"]
    assert [re.search(r"exit code \d|time limit", line) is not None for line in lines[1:]] == [True] * 3
    assert "echo hi" in lines[1]


@thorough
def test_log_shows_what_was_asked_for(cli: Cli) -> None:
    for word in ("one", "two", "three"):
        cli("run", f"echo {word}; [ {word} != two ]")
    commands = [record["command"].split(";")[0] for record in cli.json("log", "--json")]
    assert commands == ["echo one", "echo two", "echo three"]
    assert [record["exit_code"] for record in cli.json("log", "--json", "--failed")] == [1]
    assert len(cli.json("log", "--json", "--last", "2")) == 2
    assert len(cli.json("log", "--json", "--grep", "t(wo|hree);")) == 2
    assert b"is in the future" in cli("log", "--since", "2999-01-01").stderr
    assert len(cli.json("log", "--json", "--since", "1h")) == 3
    unknown = cli("log", "--on", "elsewhere")
    assert (unknown.returncode, b"'elsewhere'" in unknown.stderr) == (2, True)


def test_log_cannot_move_the_cursor(cli: Cli) -> None:
    cli("run", "echo \x1b[2J")
    assert b"\x1b" not in cli("log").stdout


@thorough
def test_bench_measures_each_thing(cli: Cli) -> None:
    told = cli.json("bench", "--runs", "3", "--json")
    measured = {each["what"]: each for each in told["measured"]}
    assert list(measured) == [
        "open + first command",
        "session: true",
        "session: echo hi",
        "program: true",
        "stream 64 MiB",
    ]
    assert all(0 < each["best_s"] <= each["median_s"] <= each["worst_s"] for each in measured.values())
    assert measured["stream 64 MiB"]["bytes_per_s"] > 1e6
    assert cli.json("log", "--json") == []


def sweep() -> None:
    """Crash a guest, and let the command clean up, on a machine of its own."""
    for folder in ("/dev/shm", "/var/tmp", "/run"):
        hide(Path(folder).resolve())
    name = crashed_guest("sleep 9911", "sleep 9922")
    before = napping()
    argv = [sys.executable, "-I", "-m", "hermes_exec", "doctor", "--reap", "--json"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    told = {"swept": json.loads(done.stdout), "programs before": before, "programs after": napping()}
    print(json.dumps(told | {"folders after": [str(path) for path in folders(name)]}))


def hide(folder: Path) -> None:
    """Mount an empty folder over this one; what these tests run from stays, should it be in there."""
    empty = Path(tempfile.mkdtemp(dir="/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "none", empty], check=True)
    for kept in (Path(__file__).resolve().parents[2], Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()):
        if kept.is_relative_to(folder):
            inside = empty / kept.relative_to(folder)
            inside.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--rbind", kept, inside], check=True)
    # mount's own record is in /run, which may be the very folder.
    subprocess.run(["mount", "--no-mtab", "--move", empty, folder], check=True)
    empty.rmdir()


def napping() -> int:
    """How many of the crashed guest's programs run."""
    return len(started_as("sleep", "9911") + started_as("sleep", "9922"))


if __name__ == "__main__" and sys.argv[1:] == ["sweep"]:
    sweep()
