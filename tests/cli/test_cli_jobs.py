"""Jobs on the command line: every command is a process of its own, and finds what another one started."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_part
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

Until = Callable[[Callable[[], object]], None]
Running = Callable[[str], list[int]]


def started(cli: Cli, *words: str) -> str:
    done = cli("run", "--detach", *words)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().strip()


def test_a_job_is_listed_by_another_process(cli: Cli) -> None:
    job = started(cli, "--name", "waits", "sleep 60")
    (told,) = cli.json("jobs", "--json")
    assert (told["job"], told["name"], told["state"], told["target"]) == (job, "waits", "running", "local")
    assert told["command"] == "sleep 60"
    head, row = cli("jobs").stdout.decode().splitlines()
    assert head.split()[:3] == ["JOB", "NAME", "STATE"]
    assert row.split()[:3] == [job, "waits", "running"]


@pytest.mark.parametrize("words", [("run", "--detach", "touch left"), ("shell", "--keep")])
def test_nothing_is_left_in_a_target_that_ends_with_the_command(cli: Cli, words: tuple[str, ...]) -> None:
    require_part("bwrap", "makes a sandbox, which ends with its process")
    done = cli(words[0], "--on", "bubblewrap", *words[1:])
    assert done.returncode == 2, done.stderr
    assert b"bubblewrap: a " in done.stderr
    assert b" would end with this command" in done.stderr
    assert done.stdout == b""


def test_attach_shows_all_and_ends_as_the_job_does(cli: Cli) -> None:
    job = started(cli, "echo out; echo err >&2; sleep 0.3; echo late; exit 7")
    done = cli("attach", job)
    assert (done.stdout, done.stderr, done.returncode) == (b"out\nlate\n", b"err\n", 7)


def test_attach_sends_input(cli: Cli) -> None:
    job = started(cli, "--stdin", "read x; echo got $x; cat")
    assert cli("attach", job, stdin=b"one\ntwo\n").stdout == b"got one\ntwo\n"


def test_attach_says_that_a_job_takes_no_input(cli: Cli, tmp_path: Path) -> None:
    job = started(cli, f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo late")
    child = cli.start("attach", job, stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(b"lost\n")
    child.stdin.close()
    assert b"the job receives no more input" in child.err.readline()
    (tmp_path / "go").touch()
    assert (child.out.read(), child.wait(20)) == (b"late\n", 0)


def test_ctrl_c_leaves_an_attached_job_to_itself(cli: Cli) -> None:
    job = started(cli, "echo ready; sleep 60")
    child = cli.start("attach", job)
    assert child.out.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130
    assert cli.json("jobs", "--json")[0]["state"] == "running"


def test_logs_shows_what_there_is(cli: Cli, until: Until) -> None:
    job = started(cli, "--name", "talks", "printf '\\303'; echo 2 >&2; sleep 0.3; printf '\\244\\n3\\n\\303'")
    until(lambda: cli.json("jobs", "--json")[0]["state"] == "ended")
    assert cli("logs", job).stdout == b"\xc3\xa4\n3\n\xc3"
    assert cli("logs", "talks", "--stream", "stderr").stderr == b"2\n"
    assert cli("logs", job, "--stream", "stdout", "--bytes", "3").stdout == b"3\n\xc3"
    lines = [json.loads(line) for line in cli("logs", job, "--json").stdout.splitlines()]
    assert "".join(line["text"] for line in lines if line["stream"] == "stdout") == "ä\n3\n\ufffd"


def test_logs_prints_the_last_lines(cli: Cli, until: Until) -> None:
    job = started(cli, "seq 30000; printf 'no end'")
    until(lambda: cli.json("jobs", "--json")[0]["state"] == "ended")
    assert cli("logs", job, "--tail", "3").stdout == b"29999\n30000\nno end"
    whole = cli("logs", job).stdout
    for lines in (20_000, 90_000):
        shown = cli("logs", job, "-n", str(lines), "--stream", "stdout").stdout
        assert shown == b"".join(whole.splitlines(keepends=True)[-lines:])
    assert cli("logs", job, "--tail", "1", "--bytes", "1").returncode == 2


def test_logs_follows_until_the_end(cli: Cli) -> None:
    job = started(cli, "--stdin", "echo first; read x; echo last")
    child = cli.start("logs", "--follow", job)
    assert child.out.readline() == b"first\n"
    cli("attach", job, stdin=b"\n")
    assert child.out.read() == b"last\n"
    assert child.wait(20) == 0


def test_kill_ends_all_that_it_started(cli: Cli, running: Running, nap: str) -> None:
    job = started(cli, f"setsid {nap} & trap '' TERM; {nap}")
    done = cli("kill", "--grace", "0.1", job)
    assert done.returncode == 0
    assert job in done.stdout.decode()
    assert not running(nap)
    assert cli.json("jobs", "--json")[0]["result"]["exit_code"] is None


def test_prune_forgets_what_has_ended_alone(cli: Cli) -> None:
    ended, other = started(cli, "true"), started(cli, "sleep 60")
    cli("attach", ended)
    assert cli.json("jobs", "--prune", "--json") == {"pruned": [ended]}
    assert [job["job"] for job in cli.json("jobs", "--json")] == [other]


def test_of_a_name_that_several_jobs_have_the_newest_is_read_and_none_is_killed(cli: Cli) -> None:
    older, newer = (started(cli, "--name", "twin", f"echo {word}; sleep 60") for word in ("older", "newer"))
    read = cli("logs", "twin")
    assert (read.returncode, read.stdout) == (0, b"newer\n")
    assert f"the newest job of this name, {newer}; others: {older}" in read.stderr.decode()
    refused = cli("kill", "twin")
    assert refused.returncode == 2
    assert all(id.encode() in refused.stderr for id in (older, newer))
    assert b"no job 'twim'" in cli("kill", older, "twim").stderr
    assert [job["state"] for job in cli.json("jobs", "--json")] == ["running", "running"]
    assert "there is no job 'twim'; the nearest is 'twin'" in cli("logs", "twim").stderr.decode()
    assert cli("kill", older).returncode == 0
    assert cli("kill", "twin").stdout.split()[0].decode() == newer  # the other one has ended


def test_a_job_outlives_the_kill_of_who_follows_it(cli: Cli) -> None:
    job = started(cli, "echo ready; sleep 60")
    child = cli.start("attach", job)
    assert child.out.readline() == b"ready\n"
    child.kill()
    child.wait()
    assert cli.json("jobs", "--json")[0]["state"] == "running"


def test_a_timeout_is_the_jobs_cap(cli: Cli) -> None:
    job = started(cli, "--timeout", "0.3", "sleep 60")
    assert cli("attach", job).returncode == 124


def test_json_gives_the_job(cli: Cli) -> None:
    told = cli.json("run", "--detach", "--json", "--name", "x", "true")
    assert told["target"] == "local"
    assert cli("attach", told["job"]).returncode == 0


def lose_guest(cli: Cli) -> tuple[Path, str]:
    """Start a guest with a job, end both, and return the path and the content of the guest's record."""
    job = started(cli, "sleep 60")
    (record,) = (Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec" / "guests").glob("*.json")
    kept = record.read_text()
    cli("kill", "--grace", "0", job)
    cli("jobs", "--prune")
    return record, kept


def test_a_guest_that_is_gone_is_forgotten(cli: Cli) -> None:
    record, kept = lose_guest(cli)
    record.write_text(kept)
    done = cli("jobs")
    assert done.stdout == b""
    assert b"local: the guest is gone, with all remaining jobs" in done.stderr
    assert not record.exists()


def test_all_guests_that_are_gone_are_one_line(cli: Cli) -> None:
    record, kept = lose_guest(cli)
    for number in range(5):
        record.with_stem(f"{number:016x}").write_text(kept.replace(record.stem, f"{number:016x}"))
    told = [line for line in cli("jobs").stderr.splitlines() if b"gone" in line]
    assert told == [b"hermes-exec: local: 5 guests are gone, with all remaining jobs"]
    assert not list(record.parent.glob("*.json"))


def test_a_state_folder_that_is_a_file_is_one_line_with_a_remedy(cli: Cli) -> None:
    folder = Path(cli.env["XDG_STATE_HOME"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hermes_exec").write_text("")
    for command in ("jobs", "log"):
        done = cli(command)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        assert b"Not a directory. Try: export XDG_STATE_HOME" in done.stderr


def test_jobs_are_told_of_when_there_are_none(cli: Cli) -> None:
    done = cli("jobs")
    assert (done.stdout, done.returncode) == (b"", 0)
    assert b"no jobs" in done.stderr
    assert cli.json("jobs", "--json") == []


@thorough
def test_two_jobs_of_two_processes_are_killed_at_once(cli: Cli) -> None:
    jobs = [started(cli, "sleep 60") for _ in range(2)]
    told = json.loads(cli("kill", "--json", *jobs).stdout)
    assert [each["job"] for each in told] == jobs


@thorough
def test_a_detached_command_holds_nobody_up(cli: Cli) -> None:
    child = cli.start("run", "--detach", "sleep 60")
    out, err = child.communicate(timeout=20)  # its end would not come if the job had inherited a pipe
    assert out
    assert err == b""


@pytest.mark.parametrize("words", [["logs", "-f"], ["attach"], ["kill"]], ids=["logs", "attach", "kill"])
@thorough
def test_the_end_of_a_job_is_recorded_by_who_sees_it(cli: Cli, words: list[str]) -> None:
    job = started(cli, "exit 3")
    cli("logs", "-f", job, env={"HERMES_EXEC_AUDIT": "0"})
    assert [record["finished"] for record in cli.json("log", "--json")] == [False]
    for _ in range(2):
        cli(*words, job)
        (record,) = cli.json("log", "--json")
        assert (record["id"], record["exit_code"]) == (job, 3)


@pytest.mark.parametrize("words", [["jobs"], ["jobs", "--prune"]], ids=["listed", "pruned"])
def test_the_end_of_a_job_that_nobody_looked_at_is_recorded_once(cli: Cli, words: list[str]) -> None:
    job, other = started(cli, "exit 3"), started(cli, "sleep 60")
    cli("logs", "-f", job, env={"HERMES_EXEC_AUDIT": "0"})
    for _ in range(2):
        cli(*words)
    records = {record["id"]: record for record in cli.json("log", "--json")}
    assert (records[job]["finished"], records[job]["exit_code"]) == (True, 3)
    assert not records[other]["finished"]
    audit = Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec" / "audit.jsonl"
    assert audit.read_text().count('"event":"end"') == 1
