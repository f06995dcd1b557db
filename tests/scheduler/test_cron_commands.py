"""``hermes-exec cron``: jobs on real targets, from the command line to the report."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import ask, say
from tests.cli.conftest import Cli, cli, until
from tests.cli.screen import Screen
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cli", "until"]


def err(cli: Cli, *words: str, code: int = 2) -> str:
    done = cli("cron", *words)
    assert done.returncode == code, done
    text = done.stderr.decode()
    assert "Traceback" not in text
    return text


def history(cli: Cli) -> list[dict[str, Any]]:
    """The slots, the oldest first."""
    found: list[dict[str, Any]] = cli.json("cron", "history", "--json")
    return found[::-1]


def change_file(cli: Cli, statement: str, *values: object) -> None:
    """Change the scheduler's file, as time would."""
    with sqlite3.connect(Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec/cron.sqlite") as base:
        base.execute(statement, values)
    base.close()


def make_due(cli: Cli, seconds: float = 1.0) -> None:
    """Let the next slot of every job be so many seconds ago."""
    change_file(
        cli,
        "UPDATE jobs SET anchor = :at - 60, cursor = :at - 60, next = :at".replace(
            ":at", str(int(time.time() - seconds))
        ),
    )


def test_a_command_runs_at_its_time_and_its_output_is_kept_and_delivered(cli: Cli) -> None:
    report = cli.cwd / "report.txt"
    cli("cron", "add", "every 1m", "--command", "echo from $PWD; echo to stderr >&2", "--name", "greet",
        "--deliver", "file:report.txt")  # fmt: skip
    make_due(cli)
    assert cli.json("cron", "tick", "--json") == {"ran": 1, "completed": 1}
    (slot,) = history(cli)
    assert (slot["state"], slot["cause"], slot["exit_code"]) == ("completed", "schedule", 0)
    assert slot["text"] == f"from {cli.env['HOME']}\nto stderr\n"
    assert [each["state"] for each in slot["deliveries"]] == ["delivered"]
    assert report.read_text().splitlines()[1:3] == [f"from {cli.env['HOME']}", "to stderr"]
    assert report.stat().st_mode & 0o777 == 0o600
    assert cli.json("cron", "tick", "--json") == {"ran": 0}
    assert b"from" in cli("cron", "show", "greet").stdout


def test_a_failure_is_recorded_and_delivered_and_is_no_failure_of_the_ticker(cli: Cli) -> None:
    cli("cron", "add", "every 1m", "--command", "echo broken; exit 3", "--name", "bad", "--deliver", "file:report")
    make_due(cli)
    done = cli("cron", "tick")
    assert done.returncode == 0
    (slot,) = history(cli)
    assert (slot["state"], slot["reason"], slot["exit_code"]) == ("failed", "exit code 3: broken", 3)
    assert "bad: failed" in (cli.cwd / "report").read_text()
    assert cli("cron", "run", "bad").returncode == 1


def test_a_time_limit_ends_a_command_and_its_processes(cli: Cli) -> None:
    cli("cron", "add", "every 1m", "--command", "sleep 60 & echo begun; wait", "--time-limit", "2s", "--name", "slow")
    began = time.monotonic()
    done = cli("cron", "run", "slow", "--json")
    assert time.monotonic() - began < 30
    slot = json.loads(done.stdout)
    assert (done.returncode, slot["state"], slot["text"]) == (1, "failed", "begun\n")


def test_a_request_is_answered_in_a_conversation_of_its_own(cli: Cli) -> None:
    replies = [ask(("terminal", {"command": "touch made"})), say("Nothing to report. [SILENT]"), say("Second.")]
    with ScriptedEndpoint(replies) as rig:
        cli.env |= {"OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m", "LLM_BASE_URL": rig.url}
        added = cli("cron", "add", "0 8 * * mon", "summarise my notifications", "--deliver", "file:report",
                    "--on", "local", "--tz", "Europe/Berlin", "--budget", "5")  # fmt: skip
        assert added.returncode == 0, added.stderr
        first = cli.json("cron", "list", "--json")[0]
        assert first["name"] == "summarise-my-notifications"
        assert cli("cron", "run", "1").returncode == 0
        assert cli("cron", "run", "1").stdout == b"Second.\n"
    slots = history(cli)
    assert [slot["state"] for slot in slots] == ["completed"] * 2
    assert slots[0]["conversation"] != slots[1]["conversation"]
    assert [slot["deliveries"][0]["state"] for slot in slots] == ["suppressed", "delivered"]
    assert "Second." in (cli.cwd / "report").read_text()
    assert "Nothing to report" not in (cli.cwd / "report").read_text()
    assert not (Path(cli.env["HOME"]) / "made").exists()  # --approve deny is the default
    for body in rig.requests:
        assert not {"clarify", "cronjob"} & {tool["function"]["name"] for tool in body.get("tools", [])}
    assert "No person watches" in rig.requests[0]["messages"][0]["content"]
    assert "summarise my notifications" in json.dumps(rig.requests[2]["messages"])
    assert "Nothing to report" not in json.dumps(rig.requests[2]["messages"])


def test_a_request_may_change_things_if_the_person_allowed_it_and_ends_with_its_budget(cli: Cli) -> None:
    with ScriptedEndpoint([ask(("terminal", {"command": "echo x >> made"}))], forever=True) as rig:
        cli.env |= {"OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m", "LLM_BASE_URL": rig.url}
        cli(
            "cron",
            "add",
            "0 8 * * mon",
            "work",
            "--approve",
            "allow",
            "--budget",
            "2",
            "--on",
            "local",
            "--name",
            "work",
        )
        done = cli("cron", "run", "work", "--json")
    assert (Path(cli.env["HOME"]) / "made").exists()
    assert done.returncode == 1
    assert "budget" in json.loads(done.stdout)["reason"]


def test_a_cap_of_cost_stops_a_run_before_the_request_that_would_exceed_it(cli: Cli) -> None:
    with ScriptedEndpoint([say("hello")], forever=True) as rig:
        cli.env |= {"OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m"}
        prices = "prices = {input = 100.0, output = 100.0}"
        cli.configure(f'[models.main]\nbase_url = "{rig.url}"\nprovider = "custom"\n{prices}\n')
        cli("cron", "add", "0 8 * * mon", "work", "--most-cost", "0.01", "--on", "local", "--name", "work")
        done = cli("cron", "run", "work", "--json")
        assert rig.requests == []
        assert "cap of 0.01 $" in json.loads(done.stdout)["reason"], done
        cli("cron", "edit", "work", "--most-cost", "50")
        assert cli("cron", "run", "work").stdout == b"hello\n"


def test_without_a_model_a_request_fails_and_says_so(cli: Cli) -> None:
    cli("cron", "add", "0 8 * * mon", "work", "--name", "work")
    done = cli("cron", "run", "work", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (1, "failed")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["0 8 * *", "x"], "is not a schedule"),
        (["0 8 * * *"], "neither a request nor a command"),
        (["0 8 * * *", "x", "--command", "y"], "both a request and a command"),
        (["0 8 * * *", "--command", "y", "--budget", "3"], "--budget: a command asks no model"),
        (["0 8 * * *", "x", "--tz", "Mars/Olympus"], "no time zone"),
        (["0 8 * * *", "x", "--on", "nowhere"], "called 'nowhere'"),
        (["0 8 * * *", "x", "--if-missed", "maybe"], "run, skip, ask"),
        (["0 8 * * *", "x", "--overlap", "maybe"], "skip, queue, kill"),
        (["0 8 * * *", "x", "--approve", "ask"], "allow, deny"),
        (["0 8 * * *", "x", "--deliver", "pigeon:me"], "no such address"),
        (["0 8 * * *", "x", "--deliver", "none", "--deliver", "file:x"], "excludes other addresses"),
        (["0 8 * * *", "x", "--deliver", "file:/"], "not a path of a file"),
        (["0 8 * * *", "x", "--time-limit", "0"], "more than 0"),
        (["0 8 * * *", "x", "--most-cost", "-1"], "more than 0"),
        (["0 8 * * *", "x", "--name", "a/b"], "is not a name"),
        (["every 999999999999999999999999d", "x"], "an interval is"),
        (["0 8 * * *", "x", "--late", "99999999999999d"], "up to 3650d"),
        (["at 0001-01-01T00:00", "x", "--tz", "Europe/Berlin"], "a year is"),
        (["at 2020-01-01T00:00", "x"], "no slot from now on"),
        (["0 8 * * *", "x", "--skill", "no-such-skill"], "no skill"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(cli: Cli, words: list[str], says: str) -> None:
    text = err(cli, "add", *words)
    assert says in text
    assert len(text.splitlines()) == 1
    assert not (Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec/cron.sqlite").exists()


@pytest.mark.parametrize("verb", ["show", "run", "pause", "resume", "remove", "approve", "history", "next", "edit"])
def test_a_name_that_is_not_there_is_one_line_for_every_command(cli: Cli, verb: str) -> None:
    text = err(cli, verb, "nothing", *(["--name", "x"] if verb == "edit" else []))
    assert "there is no job 'nothing'" in text
    assert len(text.splitlines()) == 1


def test_commands_that_only_read_create_no_file(cli: Cli) -> None:
    for words in (["list"], ["history"], ["next"], ["tick"]):
        assert cli("cron", *words).returncode == 0
    assert not (Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec/cron.sqlite").exists()


def test_an_empty_time_zone_is_the_one_of_the_machine(cli: Cli) -> None:
    cli.env["TZ"] = "Asia/Tokyo"
    cli("cron", "add", "0 8 * * *", "--command", "true", "--name", "job", "--tz", "")
    assert cli.json("cron", "list", "--json")[0]["zone"] == "Asia/Tokyo"
    cli("cron", "edit", "job", "--tz", "UTC")
    cli("cron", "edit", "job", "--tz", "")
    assert cli.json("cron", "list", "--json")[0]["zone"] == "Asia/Tokyo"


def test_a_job_is_edited_paused_resumed_and_removed(cli: Cli) -> None:
    cli("cron", "add", "0 8 * * *", "--command", "true", "--name", "job", "--tz", "UTC")
    cli(
        "cron",
        "edit",
        "job",
        "--schedule",
        "30 9 * * *",
        "--name",
        "other",
        "--overlap",
        "queue",
        "--deliver",
        "file:r",
    )
    (job,) = cli.json("cron", "list", "--json")
    assert (job["name"], job["schedule"], job["overlap"], job["zone"]) == ("other", "30 9 * * *", "queue", "UTC")
    cli("cron", "edit", "other", "--request", "look", "--deliver", "none")
    (job,) = cli.json("cron", "list", "--json")
    assert (job["prompt"], job["command"], job["deliver"]) == ("look", "", [])
    cli("cron", "pause", "other")
    assert cli.json("cron", "list", "--json")[0]["state"] == "paused"
    assert err(cli, "pause", "other").startswith("hermes-exec: the job 'other' is paused")
    cli("cron", "resume", "other")
    slots = cli.json("cron", "next", "other", "-n", "3", "--json")
    assert len(slots) == 3
    assert all(slot["slot"].endswith("T09:30+00:00") for slot in slots)
    cli("cron", "remove", "other")
    assert cli.json("cron", "list", "--json") == []


def test_a_daemon_runs_jobs_at_their_time_and_ends_in_good_order(cli: Cli, until: Callable[..., None]) -> None:
    cli("cron", "add", "every 1m", "--command", "echo x >> ran", "--name", "job")
    make_due(cli, 0.0)
    daemon = cli.start("cron", "daemon")
    until(lambda: [slot["state"] for slot in history(cli)] == ["completed"])
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(20) == 0
    assert (Path(cli.env["HOME"]) / "ran").read_text() == "x\n"


def test_a_killed_tick_leaves_a_slot_of_unknown_outcome_that_is_not_run_again(
    cli: Cli, until: Callable[..., None]
) -> None:
    cli("cron", "add", "every 1m", "--command", "echo x >> ran; sleep 600", "--name", "job", "--deliver", "file:report")
    make_due(cli)
    tick = cli.start("cron", "tick")
    until((Path(cli.env["HOME"]) / "ran").exists)
    tick.kill()
    tick.wait()
    cli("cron", "tick")
    (slot,) = history(cli)
    assert slot["state"] == "unknown"
    assert f"process {tick.pid}" in slot["reason"]
    assert "job: unknown" in (cli.cwd / "report").read_text()
    assert (Path(cli.env["HOME"]) / "ran").read_text() == "x\n"


def test_an_interrupted_run_ends_its_command_and_is_recorded(cli: Cli, until: Callable[..., None]) -> None:
    cli("cron", "add", "every 1m", "--command", "echo x >> ran; sleep 600", "--name", "job")
    run = cli.start("cron", "run", "job")
    until((Path(cli.env["HOME"]) / "ran").exists)
    run.send_signal(signal.SIGINT)
    assert run.wait(20) == 130
    (slot,) = history(cli)
    assert (slot["state"], slot["reason"]) == ("failed", "the command was interrupted")


def test_an_agents_shell_changes_no_jobs(cli: Cli) -> None:
    cli("cron", "add", "0 8 * * *", "--command", "true", "--name", "job")
    cli.env["HERMES_EXEC_AGENT"] = "some-model"
    for words in (["add", "every 1m", "--command", "true"], ["run", "job"], ["remove", "job"],
                  ["edit", "job", "--name", "x"], ["pause", "job"], ["resume", "job"], ["approve", "job"]):  # fmt: skip
        assert "for a person" in err(cli, *words)
    assert cli("cron", "list").returncode == 0


def propose(cli: Cli, **arguments: str) -> str:
    """Let the agent call the tool in a chat; return what it was told."""
    cli.configure("[agent]\nscheduled_jobs = true\n")
    script = cli.cwd / "script.jsonl"
    call = {"content": "", "tool_calls": [{"name": "cronjob", "arguments": arguments}]}
    script.write_text(f"{json.dumps(call)}\n{json.dumps({'content': 'Done.'})}\n")
    cli("chat", "-q", "do it", "--replay", str(script), "--on", "local")
    events: list[dict[str, Any]] = cli.json("conversations", "show", "last", "--json")
    return next(json.dumps(event["data"]) for event in events if event["kind"] == "result")


def test_a_job_of_the_agent_waits_for_a_yes_at_a_terminal(cli: Cli) -> None:
    told = propose(cli, action="create", name="nightly", schedule="0 3 * * *", command="echo \x1b[2J; true")
    assert "hermes-exec cron approve nightly" in told
    (job,) = cli.json("cron", "list", "--json")
    assert (job["state"], job["author"], job["target"]) == ("waiting", "scripted: script.jsonl", "local")
    make_due(cli)
    assert cli.json("cron", "tick", "--json") == {"ran": 0}
    assert "standard input is not a terminal" in err(cli, "approve", "nightly")
    for answer, code, state in (("n", 1, "waiting"), ("y", 0, "active")):
        screen = Screen(cli, "cron", "approve", "nightly")
        shown = screen.see("Run nightly at these times")
        assert b"\x1b[2J" not in shown.string
        assert b"echo" in shown.string
        screen.type(f"{answer}\n")
        assert screen.end() == code
        screen.close()
        assert cli.json("cron", "list", "--json")[0]["state"] == state
    assert "only a person removes" in propose(cli, action="remove", name="nightly")
    assert "nightly: active" in propose(cli, action="list")


def test_the_agent_withdraws_what_it_proposed_and_nothing_else(cli: Cli) -> None:
    propose(cli, action="create", name="nightly", schedule="0 3 * * *", prompt="look")
    assert "withdrawn" in propose(cli, action="remove", name="nightly")
    assert cli.json("cron", "list", "--json") == []
    assert "is not a schedule" in propose(cli, action="create", schedule="soon", prompt="look")


def test_the_doctor_reports_what_a_person_should_look_at(cli: Cli) -> None:
    def rows() -> list[str]:
        found = re.findall(r"^agent +cron +(\w+) +(.*)$", cli("doctor", "--all").stdout.decode(), re.MULTILINE)
        return [f"{status}: {detail.partition('  ')[0]}" for status, detail in found]

    assert rows()[0].startswith("ok: no job yet")
    cli("cron", "add", "0 8 * * *", "--command", "true", "--name", "job")
    assert rows() == ["warning: 1 job is active, and no ticker looked for due slots ever"]
    cli("cron", "tick")
    assert rows() == ["ok: 1 job, 1 active"]
    change_file(cli, """UPDATE jobs SET spec = json_set(spec, '$.deliver', json('["mail:me@example.org"]'))""")
    assert rows() == ["warning: job cannot deliver to mail:me@example.org: no mail server is configured"]
    change_file(cli, "UPDATE jobs SET state = 'paused', failures = 5")
    assert rows() == ["warning: paused after failures: job"]


def test_the_agents_server_runs_what_is_due(cli: Cli, until: Callable[..., None]) -> None:
    cli("cron", "add", "every 1m", "--command", "echo x >> ran", "--name", "job")
    make_due(cli)
    server = cli.start("serve", "--socket", "private/s", "--json")
    until(lambda: [slot["state"] for slot in history(cli)] == ["completed"])
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0


def test_the_file_is_where_the_variable_says(cli: Cli) -> None:
    cli.env["HERMES_EXEC_CRON"] = str(cli.cwd / "mine.sqlite")
    cli("cron", "add", "0 8 * * *", "--command", "true")
    assert os.path.exists(cli.cwd / "mine.sqlite")
    cli.env["HERMES_EXEC_CRON"] = "mine.sqlite"
    assert "absolute" in err(cli, "list")
