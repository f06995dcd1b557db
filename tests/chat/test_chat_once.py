"""``chat -q``: one question, for people and for programs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import ask
from hermes_exec_agent.models import say as say_so
from tests.chat.conftest import do, events, say
from tests.rigs.breadth import thorough
from tests.rigs.endpoint import KEY, Raw, ScriptedEndpoint, Streamed
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    import subprocess

    from tests.cli.conftest import Cli
    from tests.rigs.endpoint import Written

Script = Callable[..., str]
Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]


def test_the_reply_goes_to_standard_output_and_tools_to_standard_error(cli: Cli, script: Script) -> None:
    path = script(do("echo from the tool; exit 3"), say("It failed, as it was to."))
    done = cli("chat", "-q", "go on", "--replay", path, "--approve", "allow")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"[scripted] It failed, as it was to.\n"
    assert b"terminal  echo from the tool; exit 3  (local, exit code 3, " in done.stderr


@pytest.mark.parametrize("words", [["-q", "go"], []], ids=["question", "replay"])
def test_a_delegated_task_shows_a_line_for_each_of_its_calls(cli: Cli, script: Script, words: list[str]) -> None:
    task = {"tool_calls": [{"name": "delegate_task", "arguments": {"goal": "Count."}}]}
    person = [] if words else [{"user": "go"}]
    path = script(*person, task, do("echo one"), do("exit 4"), say("Two."), say("Done."))
    done = cli("chat", *words, "--replay", path, "--approve", "allow")
    first, second, last = done.stderr.decode().splitlines()
    assert first.startswith("  terminal  echo one  (local, exit code 0, ")
    assert second.startswith("  terminal  exit 4  (local, exit code 4, ")
    assert last.startswith("delegate_task  Count.  (local, ")
    assert done.stdout.endswith(b"[scripted] Done.\n")
    assert b"Two." not in done.stdout


def test_quiet_leaves_out_all_but_the_reply(cli: Cli, script: Script) -> None:
    done = cli("-q", "chat", "-q", "go on", "--replay", script(do("true"), say("Done.")), "--approve", "allow")
    assert (done.stdout, done.stderr) == (b"[scripted] Done.\n", b"")


def test_json_is_one_document_that_says_that_it_was_scripted(cli: Cli, script: Script) -> None:
    told = cli.json("chat", "-q", "hello", "--replay", script(say("Hello.")), "--json")
    assert told["text"] == "Hello."
    assert told["outcome"] == "answered"
    assert told["scripted"] is True
    assert told["backend"] == "local"
    assert set(told) == {
        "text", "outcome", "scripted", "backend", "model", "conversation", "steps", "calls", "usage",
        "background_ended",
    }  # fmt: skip


def test_a_conversation_with_tools_is_shown_with_what_they_were_asked_for(cli: Cli, script: Script) -> None:
    cli("chat", "-q", "look", "--replay", script(do("echo here"), say("Seen.")), "--approve", "allow")
    done = cli("conversations", "show", "last")
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode()
    assert '### terminal\n\n```json\n{"command": "echo here"}\n```\n\n```text\nhere\n```' in shown
    assert shown.rstrip().endswith("Seen.")


def test_the_record_of_a_script_says_so(cli: Cli, script: Script) -> None:
    cli("chat", "-q", "hello", "--replay", script(say("Hello.")))
    (started,) = events(cli, "started")
    assert started["data"]["scripted"] is True
    assert all("scripted" in event["data"]["model"] for event in events(cli, "assistant"))


def test_without_a_model_one_screen_says_what_was_looked_for_and_the_exit_code_is_2(cli: Cli) -> None:
    done = cli("chat", "-q", "hello")
    assert done.returncode == 2
    assert done.stdout == b""
    shown = done.stderr.decode()
    assert len(shown.splitlines()) <= 24
    for word in ("OPENAI_API_KEY", "DEFAULT_MODEL", "LLM_PROVIDER", "--replay demo"):
        assert word in shown
    assert "Traceback" not in shown


def test_without_a_model_a_terminal_gets_the_same_screen(cli: Cli, chat: Callable[..., object]) -> None:
    from tests.cli.screen import Screen

    here = chat()
    assert isinstance(here, Screen)
    here.see("OPENAI_API_KEY")
    assert here.end() == 2


def test_a_real_model_is_asked_and_its_key_is_in_no_record(cli: Cli) -> None:
    replies = [
        ask(("terminal", {"command": "env; tr '\\0' '\\n' < /proc/$PPID/environ"}), text="Wait."),
        say_so("A reply."),
    ]
    with ScriptedEndpoint(replies) as endpoint:
        cli.env |= {
            "LLM_PROVIDER": "openai",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": endpoint.url,
            "DEFAULT_MODEL": "one",
        }
        done = cli("chat", "-q", "hello", "--approve", "allow")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"Wait.\nA reply.\n"
    assert not endpoint.complaints
    assert KEY not in json.dumps(endpoint.requests)
    assert KEY not in json.dumps(events(cli))


def test_a_pipe_is_one_question(cli: Cli, script: Script) -> None:
    done = cli("chat", "--replay", script(say("Two lines.")), stdin=b"one\ntwo\n")
    assert done.stdout == b"[scripted] Two lines.\n"
    assert [event["data"]["content"] for event in events(cli, "user")] == ["one\ntwo\n"]


def test_an_empty_question_is_refused(cli: Cli, script: Script) -> None:
    done = cli("chat", "-q", "-", "--replay", script(say("Never.")), stdin=b" \n")
    assert done.returncode == 2
    assert b"the question is empty" in done.stderr


def test_text_is_sent_along_with_a_question(cli: Cli, script: Script) -> None:
    (cli.cwd / "log").write_text("first\n```\nlast")
    words = ["-q", "What is wrong?", "--file", "log", "-f", "-"]
    done = cli("chat", *words, "--replay", script(say("Nothing.")), stdin=b"piped \xff\n")
    assert (done.returncode, done.stderr) == (0, b"")
    (event,) = events(cli, "user")
    assert event["data"]["content"] == (
        "What is wrong?\n\nlog:\n````\nfirst\n```\nlast\n````\n\nstandard input:\n```\npiped \ufffd\n```"
    )


def test_what_was_piped_in_and_not_read_is_told(cli: Cli, script: Script) -> None:
    theirs, ours = os.pipe()
    os.write(ours, b"for somebody\n")
    child = cli.start("chat", "-q", "What is wrong?", "--replay", script(say("Nothing.")), stdin=theirs)
    _, said = child.communicate(timeout=120)
    assert said == b"standard input was not read; --file - attaches it\n"
    assert os.read(theirs, 100) == b"for somebody\n"
    os.close(theirs)
    os.close(ours)


@pytest.mark.parametrize("words", [["--resume", "last"], ["--continue"]], ids=" ".join)
def test_a_conversation_goes_on_where_it_was_left(cli: Cli, script: Script, words: list[str]) -> None:
    first = cli.json("chat", "-q", "one", "--replay", script(say("First.")), "--json")
    second = cli.json("chat", "-q", "two", "--replay", script(say("Second.")), "--json", *words)
    assert second["conversation"] == first["conversation"]
    assert [event["data"]["content"] for event in events(cli, "user")] == ["one", "two"]


def test_where_nobody_is_there_a_question_counts_as_refused(cli: Cli, script: Script) -> None:
    path = script(do("touch made"), say("It was not allowed."))
    done = cli("chat", "-q", "make it", "--replay", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"[scripted] It was not allowed.\n"
    assert not (cli.cwd / "made").exists()
    assert "denied" in json.dumps(events(cli, "result"))


def test_what_a_model_says_moves_no_cursor(cli: Cli, script: Script) -> None:
    done = cli("chat", "-q", "hello", "--replay", script(say("clear\x1b[2J\x07 and go\u202e on")))
    assert done.stdout == b"[scripted] clear\\x1b[2J\\x07 and go\\u202e on\n"


def test_an_interrupt_leaves_nothing_running_and_is_recorded(
    cli: Cli, script: Script, running: Running, until: Until, nap: str
) -> None:
    child = cli.start(
        "chat", "-q", "wait", "--replay", script(do(f"setsid {nap} & {nap}"), say("No.")), "--approve", "allow"
    )
    until(lambda: len(running(nap)) >= 2)
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(30) == 130
    until(lambda: not running(nap))
    assert events(cli, "interrupted")
    assert b"Traceback" not in child.err.read()


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"content": ""}',
        '["user"]',
        '{"tool_calls": [{"name": "terminal"}]}',
        '{"if": "late", "content": "x"}',
        '{"if": "denied", "content": "with no other reply after it"}',
        '{"if": "denied", "content": "x"}{"user": "x"}',
    ],
)
def test_a_script_that_is_none_names_its_line(cli: Cli, line: str) -> None:
    (cli.cwd / "broken.jsonl").write_text(f'{{"content": "fine"}}\n\n{line}\n')
    done = cli("chat", "-q", "hello", "--replay", "broken.jsonl")
    assert done.returncode == 2
    assert b"broken.jsonl: line 3" in done.stderr


def test_a_script_that_ends_too_early_is_a_failure_in_a_line(cli: Cli, script: Script) -> None:
    done = cli("chat", "-q", "hello", "--replay", script(do("true")), "--approve", "allow")
    assert done.returncode == 125
    assert done.stderr.decode().splitlines()[-1].startswith("hermes-exec: scripted: ")
    assert events(cli, "failed")


def test_the_demo_runs_its_harmless_commands_without_asking_and_says_so(cli: Cli) -> None:
    done = cli("chat", "--replay", "demo")
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    assert said.count("[scripted] you> ") == len(events(cli, "user")) == 2
    assert b"run without approval" in done.stderr
    results = [json.loads(event["data"]["content"]) for event in events(cli, "result")]
    assert [result["exit_code"] for result in results] == [0, 0]
    assert results[1]["output"] == "hello from a script\n"
    assert "ran in your place" in said
    assert "wrote a file, read it and removed it" in said


def test_the_demo_says_that_nothing_ran_where_nothing_did(cli: Cli, tmp_path: Path) -> None:
    done = cli("chat", "--replay", "demo", "--approve", "deny")
    assert (done.returncode, b"without asking" in done.stderr) == (0, False)
    assert done.stdout.count(b"denied, so no") == 2
    nowhere = cli("chat", "--replay", "demo", "--on", "ssh://nobody@127.0.0.1:1")
    assert nowhere.returncode == 125
    assert nowhere.stderr.splitlines()[-1].startswith(b"hermes-exec: ssh: ")
    assert nowhere.stdout.count(b"[scripted]") == 1  # the request; nobody answered it
    (cli.cwd / "df").write_text("#!/bin/sh\nexit 1\n")
    (cli.cwd / "df").chmod(0o755)
    broken = cli("chat", "--replay", "demo", env={"PATH": f"{cli.cwd}:{os.environ['PATH']}"})
    for each in (done, nowhere, broken):
        assert b"ran in your place" not in each.stdout


def test_a_file_cannot_let_its_own_commands_run(cli: Cli, script: Script) -> None:
    (cli.cwd / "demo.jsonl").write_text(Path(script({"user": "go"}, do("touch made"), say("Done."))).read_text())
    assert cli("chat", "--replay", "demo.jsonl").returncode == 0
    assert not (cli.cwd / "made").exists()


def test_a_replay_ends_where_its_script_does(cli: Cli, script: Script) -> None:
    done = cli("chat", "--replay", script({"user": "one"}, {"user": "two"}, say("First.")))
    assert (done.returncode, done.stdout.count(b"[scripted]")) == (125, 3)


def profile(cli: Cli, name: str, *, lease_s: int) -> None:
    """Write the user's file with one place of this machine."""
    cli.configure(f'[backends.{name}]\ntype = "local"\nlease_s = {lease_s}\n')


def start(command: str, **more: bool) -> dict[str, object]:
    """A line of a script: the model asks for a command in the background."""
    return {
        "content": "",
        "tool_calls": [{"name": "terminal", "arguments": {"command": command, "background": True, **more}}],
    }


@pytest.fixture
def here(request: pytest.FixtureRequest, cli: Cli) -> Generator[None]:
    """A place of that name and kind, with a lease of a second."""
    with contextlib.ExitStack() as stack:
        facts = "[backends.here]\nlease_s = 1\n"
        if request.param == "ssh":
            there = stack.enter_context(Sshd()).profile().model_dump(mode="json", exclude_defaults=True)
            facts += "".join(f"{name} = {json.dumps(value)}\n" for name, value in there.items())
        cli.configure(f'{facts}type = "{request.param}"\n')
        yield


@thorough
@pytest.mark.parametrize("here", ["local", "ssh"], indirect=True)
@pytest.mark.usefixtures("here")
def test_what_a_killed_chat_ran_ends_with_its_lease(
    cli: Cli, script: Script, nap: str, running: Running, until: Until
) -> None:
    left, background = nap, nap.replace("sleep 9", "sleep 7")
    replay = script(start(f"(setsid {background} &); {background}"), do(left))
    chat = cli.start("chat", "-q", "go", "--replay", replay, "--approve", "allow", "--on", "here")
    until(lambda: running(left) and len(running(background)) >= 2)
    chat.kill()
    chat.wait()
    until(lambda: not running(left) and not running(background))


def test_one_question_ends_what_it_started_in_the_background_and_says_so(
    cli: Cli, script: Script, nap: str, running: Running
) -> None:
    background, kept = nap, nap.replace("sleep 9", "sleep 8")
    replay = script(start(f"(setsid {background} &); {background}"), start(kept, keep=True), say("Started."))
    words = ["chat", "-q", "go", "--replay", replay, "--approve", "allow"]
    done = cli(*words)
    assert (done.returncode, done.stdout) == (0, b"[scripted] Started.\n")
    ended = done.stderr.decode().splitlines()[-1]
    assert re.fullmatch(rf"ended with the conversation: \S+: \(setsid {background} &\); {background}", ended)
    assert not running(background)
    assert not running(kept)  # nobody there approved a job that outlives the conversation
    assert [event["data"]["background"] for event in events(cli, "ended")] == [[ended.partition(": ")[2]]]
    told = json.loads(cli(*words, "--json").stdout)
    assert [each.partition(": ")[2] for each in told["background_ended"]] == [f"(setsid {background} &); {background}"]
    assert not running(background)


@pytest.mark.parametrize(("target", "lease_s"), [("local", 30), ("named", 7)])
def test_the_place_of_a_chat_has_a_short_lease_unless_its_profile_says_another(
    cli: Cli, script: Script, target: str, lease_s: int
) -> None:
    profile(cli, "named", lease_s=7)
    done = cli("-v", "chat", "-q", "go", "--replay", script(say("Hello.")), "--on", target)
    opened = [line for line in done.stderr.decode().splitlines() if " opened" in line]
    assert len(opened) == 1
    assert f"lease_s={lease_s}.0" in opened[0]


def asked_of(cli: Cli, answers: Sequence[Written], **habits: Any) -> tuple[subprocess.CompletedProcess[bytes], int]:
    """One question to an endpoint that answers so, the last one for ever, and how often it was asked."""
    with ScriptedEndpoint(answers, forever=True, **habits) as rig:
        env = {"OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m", "LLM_BASE_URL": rig.url}
        return cli("chat", "-q", "go", "--approve", "allow", env=env), len(rig.requests)


def test_a_turn_that_was_cut_or_empty_says_so(cli: Cli) -> None:
    for answer, said in (
        (Streamed(say_so("half"), finish="length"), b"[the reply was cut at the maximum length]\n"),
        (say_so(""), b"[the model sent no text, after several requests]\n"),
    ):
        done, _ = asked_of(cli, [answer])
        assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("habit", ["obeyed", "ignored", "refused"])
def test_a_model_that_gets_nowhere_is_stopped_where_nobody_watches(cli: Cli, habit: Any) -> None:
    done, asked = asked_of(cli, [ask(("no_such_tool", {}))], tool_choice=habit)
    assert done.returncode == 1
    assert b"[stopped: no progress]" in done.stderr
    assert asked < 10
    assert b"Failed:\n\n- no_such_tool: unknown_tool: there is no tool" in done.stdout
    assert b"(5 times)\n\n" in done.stdout
    assert done.stdout.endswith(b"Left running: nothing\n")
    for shown in (cli("conversations", "show", "last"), cli("conversations", "search", "program list")):
        assert b"list is the program" in shown.stdout


def test_the_text_of_a_turn_without_budget_is_the_list(cli: Cli, script: Script) -> None:
    words = ["-q", "go", "--replay", script(do("echo one"), do("echo two")), "--budget", "1", "--approve", "allow"]
    done = cli("chat", *words, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["outcome"]) == (1, "budget")
    assert "\n\nDone:\n\n- terminal  echo one\n" in told["text"]
    assert "\n\nAsked for and not run:\n\n- terminal  echo two\n" in told["text"]


@thorough
def test_an_answer_that_is_no_stream_is_told_as_such(cli: Cli) -> None:
    done, asked = asked_of(cli, [Raw(b"It works!")])
    *retried, last = done.stderr.decode().splitlines()
    assert last == (
        "hermes-exec: m: the stream ended before the reply did; asked 5 times. "
        "Try: the endpoint's own address as its base URL, which ends in /v1 mostly"
    )
    assert retried == ["m: the stream ended before the reply did; the request is repeated"] * (asked - 1)
    assert done.returncode == 125


def test_what_was_shown_of_a_reply_that_broke_off_is_told_to_be_void(cli: Cli) -> None:
    done, _ = asked_of(cli, [Streamed(say_so("half a"), finish=None), say_so("whole")])
    assert done.stdout == b"half a\nwhole\n"
    cause = b"m: the stream ended before the reply did; the request is repeated"
    assert done.stderr == cause + b", and the reply above is discarded\n"


def test_a_turn_ends_once_its_dollars_are_spent_and_a_day_refuses_the_next(cli: Cli) -> None:
    usage = {"prompt_tokens": 100_000, "completion_tokens": 1}
    replies = [
        Streamed(reply, usage=usage) for reply in (ask(("terminal", {"command": "true"})), say_so("Half of it."))
    ]
    cli.env |= {"OPENAI_API_KEY": KEY}
    with ScriptedEndpoint(replies) as rig:
        cli.configure(
            "[agent]\nmost_cost_day = 0.15\n"
            f'[models.main]\nprovider = "custom"\nmodel = "m"\nbase_url = "{rig.url}"\n'
            "prices = { input = 1.0, output = 1.0 }\n"
        )
        done = cli("chat", "-q", "go", "--most-cost", "0.1", "--approve", "allow")
        assert (done.returncode, done.stdout) == (1, b"Half of it.\n"), done.stderr
        assert b"warning: The budget of $0.10 for this request is spent: $0.100001." in done.stderr
        refused = cli("chat", "-q", "go on")
        assert refused.returncode == 2
        assert b"The budget of $0.15 for today is spent: $0.200002" in refused.stderr
        assert len(rig.requests) == 2
