"""The chat on a real terminal."""

from __future__ import annotations

import os
import termios
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.frontends.chat.slash_commands import COMMAND_HELP
from tests.chat.conftest import do, events, private, say
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.cli.screen import Screen

Chat = Callable[..., "Screen"]
Script = Callable[..., str]
Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]
PROMPT = "you> "


def test_a_turn_and_then_the_way_out(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("First *answer*."), say("Second answer.")))
    here.see(PROMPT)
    here.type("hello\r")
    here.see(r"\[scripted\]")
    here.see("First ")
    here.see(PROMPT)
    here.type("again\r")
    here.see("Second answer")
    here.see(PROMPT)
    here.type("\x04")
    here.see(r"To continue: hermes-cli --resume \d{8}-")
    assert here.end() == 0
    assert termios.tcgetattr(here.theirs) == here.before
    assert [event["data"]["content"] for event in events(cli, "user")] == ["hello", "again"]


def test_the_client_of_the_model_is_created_while_the_person_types(
    cli: Cli, chat: Chat, until: Until, tmp_path: Path
) -> None:
    certificates = tmp_path / "certificates"
    os.mkfifo(certificates)
    cli.env |= {"OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m", "FALLBACK_MODELS": "n", "PROMPT_TOOLKIT_NO_CPR": "1"}
    cli.env |= {"LLM_BASE_URL": "https://models.invalid/v1", "SSL_CERT_FILE": str(certificates)}
    here = chat()
    here.see(PROMPT)
    until(lambda: has_reader(certificates))  # which nothing but a client of the endpoint opens


def has_reader(pipe: Path) -> bool:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_a_tool_is_shown_with_its_place_and_a_glimpse_of_its_output(chat: Chat, script: Script) -> None:
    here = chat("--replay", script(do("seq 9"), say("Nine.")), "--approve", "allow")
    here.see(PROMPT)
    here.type("count\r")
    here.see("terminal  seq 9")
    here.see("local, exit code 0")
    here.see("│ 4")
    here.see("5 more lines")
    here.see("Nine")


def test_ctrl_c_ends_the_turn_and_all_that_it_started_but_not_the_chat(
    cli: Cli, chat: Chat, script: Script, running: Running, until: Until, nap: str
) -> None:
    here = chat("--replay", script(do(f"setsid {nap} & {nap}"), say("Still here.")), "--approve", "allow")
    here.see(PROMPT)
    here.type("wait\r")
    until(lambda: len(running(nap)) >= 2)
    here.type("\x03")
    here.see(r"\[interrupted\]")
    until(lambda: not running(nap))
    here.see(PROMPT)
    here.type("and now?\r")
    here.see("Still here")
    here.see(PROMPT)
    here.type("/quit\r")
    assert here.end() == 0
    assert events(cli, "interrupted")


@pytest.mark.parametrize(("answer", "made"), [("y\r", True), ("n\r", False), ("\r", False)])
def test_a_tool_that_changes_something_asks_first(
    cli: Cli, chat: Chat, script: Script, answer: str, made: bool
) -> None:
    here = chat("--replay", script(do("touch made"), say("That is all.")))
    here.see(PROMPT)
    here.type("make it\r")
    here.see("touch made")
    here.see(r"Allow\?.*: ")
    here.type(answer)
    here.see("That is all")
    assert (cli.cwd / "made").exists() == made
    assert [event["data"]["answer"] for event in events(cli, "approval")] == ["approved" if made else "denied"]


def test_a_delegated_task_and_the_list_of_a_spent_budget_are_shown(chat: Chat, script: Script) -> None:
    task = {"tool_calls": [{"name": "delegate_task", "arguments": {"goal": "Count."}}]}
    path = script(task, do("echo one"), say("Counted."), do("echo two"))
    here = chat("--replay", path, "--approve", "allow", "--budget", "1")
    here.see(PROMPT)
    here.type("go\r")
    here.see("  terminal  echo one  .local, exit code 0, ")
    here.see("This list is the program's own")
    here.see("Left running: nothing")
    here.see(r"\[stopped: this turn's budget is spent\]")


def test_a_question_is_asked_again_until_it_is_answered(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(do("touch made"), say("That is all.")))
    here.see(PROMPT)
    here.type("make it\r")
    here.see(r"Allow\?.*: ")
    here.type("perhaps\r")
    here.see("Please answer y, n or a: ")
    here.type("yes\r")
    here.see("That is all")
    assert (cli.cwd / "made").exists()


def test_what_was_typed_before_a_question_is_no_answer_to_it(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(do("touch one"), do("touch two"), say("That is all.")))
    here.see(PROMPT)
    here.type("make them\r")
    here.see(r"Allow\?.*: ")
    here.type("y\ry\r")
    here.see(r"Allow\?.*: ")
    here.type("n\r")
    here.see("That is all")
    assert {path.name for path in cli.cwd.iterdir()} == {"one"}


def test_always_is_asked_once(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(do("touch one"), do("touch two"), say("Both.")))
    here.see(PROMPT)
    here.type("make them\r")
    here.see(r"lways for touch \*: ")
    here.type("a\r")
    here.see("Both")
    assert {path.name for path in cli.cwd.iterdir()} == {"one", "two"}
    here.see(PROMPT)
    here.type("/approvals\r")
    here.see(r"1\. always in this chat: terminal touch \*")
    here.see(PROMPT)
    here.type("/approvals remove 1\r")
    here.see(r"asked for again: terminal touch \*")


def test_always_for_a_path_holds_for_no_other_path(cli: Cli, chat: Chat, script: Script) -> None:
    for name in ("one", "two"):
        (cli.cwd.parent / name).write_text(name, encoding="utf-8")
    calls = [{"name": "read_file", "arguments": {"path": f"../{name}"}} for name in ("one", "one", "two")]
    here = chat("--replay", script(*({"content": "", "tool_calls": [call]} for call in calls), say("Read.")))
    here.see(PROMPT)
    here.type("read them\r")
    here.see(rf"read_file: read {cli.cwd.parent}/one, outside of the workspace {cli.cwd}")
    here.see(r"lways for this path: ")
    here.type("a\r")
    here.see(rf"read_file: read {cli.cwd.parent}/two, ")
    here.see(r"Allow\?.*: ")
    here.type("n\r")
    here.see("Read")
    assert [event["data"]["answer"] for event in events(cli, "approval")] == ["approved", "approved", "denied"]


def test_ctrl_c_at_a_question_ends_the_turn(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(do("touch made"), say("Never.")))
    here.see(PROMPT)
    here.type("make it\r")
    here.see(r"Allow\?.*: ")
    here.type("\x03")
    here.see(r"\[interrupted\]")
    here.see(PROMPT)
    here.type("\x04")
    assert here.end() == 0
    assert not (cli.cwd / "made").exists()


@pytest.mark.parametrize("another_line", ["\x1b\r", "\n", "\\\r"])
def test_a_message_can_have_several_lines(cli: Cli, chat: Chat, script: Script, another_line: str) -> None:
    here = chat("--replay", script(say("Read.")))
    here.see(PROMPT)
    here.type(f"one{another_line}two\r")
    here.see("Read")
    assert [event["data"]["content"] for event in events(cli, "user")] == ["one\ntwo"]


def test_what_was_typed_is_found_again_and_is_nobody_elses(cli: Cli, chat: Chat, script: Script) -> None:
    path = script(say("Once."), say("Twice."))
    for typed in ("the same words\r", "\x1b[A\r", "\x12SAME\r\r"):  # Ctrl-R finds, Enter takes, Enter sends
        here = chat("--replay", path)
        here.see(PROMPT)
        here.type(typed)
        here.see("Once")
        here.see(PROMPT)
        here.type("\x04")
        assert here.end() == 0
    assert [event["data"]["content"] for event in events(cli, "user")] == ["the same words"]
    state = Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec"
    assert private(state / "chat_history")
    assert private(state / "conversations.sqlite")


def test_what_is_typed_while_a_turn_runs_is_sent_after_it(
    cli: Cli, chat: Chat, script: Script, running: Running, until: Until, nap: str
) -> None:
    flag = cli.cwd / "go"
    here = chat(
        "--replay",
        script(do(f"until test -e {flag}; do sleep 0.05; done"), say("One."), say("Two.")),
        "--approve",
        "allow",
    )
    here.see(PROMPT)
    here.type("first\r")
    here.see("terminal  until test")
    here.type("second\r")
    flag.touch()
    here.see("Two")
    assert [event["data"]["content"] for event in events(cli, "user")] == ["first", "second"]


def test_help_lists_every_command(chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("Never.")))
    here.see(PROMPT)
    here.type("/help\r")
    for name in COMMAND_HELP:
        here.see(f"{name} ")
    here.see(PROMPT)
    here.type("/resum\r")
    here.see("there is no such command. Try: /resume /help")
    documented = (Path(__file__).parents[2] / "docs" / "chat.md").read_text()
    assert not [name for name in COMMAND_HELP if f"`{name}" not in documented]


def test_a_slash_command_goes_to_no_model(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("The one answer.")))
    here.see(PROMPT)
    here.type("/model\r")
    here.see("main .*scripted")
    here.see(PROMPT)
    here.type("/tools\r")
    here.see("terminal  ")
    here.see(PROMPT)
    here.type("/usage\r")
    here.see("wrote 0")
    here.see(PROMPT)
    here.type("/skills\r")
    here.see("there is no skill yet")
    here.see(PROMPT)
    here.type("/resume\r")
    here.see("there is no conversation yet")
    here.see(PROMPT)
    here.type("/compact\r")
    here.see("the context cannot be shortened")
    here.see(PROMPT)
    here.type("hello\r")
    here.see("The one answer")
    here.see(PROMPT)
    here.type("/COST\r")
    here.see(r"wrote [1-9]")
    assert len(events(cli, "user")) == 1


def test_conversations_are_left_found_and_gone_on_with(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("Of cats."), say("Of dogs."), say("Of cats again.")))
    here.see(PROMPT)
    here.type("about cats\r")
    here.see("Of cats")
    here.see(PROMPT)
    here.type("/new\r")
    here.see("a new conversation")
    here.see(PROMPT)
    here.type("about dogs\r")
    here.see("Of dogs")
    here.see(PROMPT)
    here.type("/search cats\r")
    cats = here.see(r"(\d{8}-\d{6}-\w{8}#2)  ").group(1).decode()
    here.see(PROMPT)
    here.type(f"/resume {cats}\r")
    here.see("continuing .*: about cats")
    here.see("> about cats")
    here.see("Of cats")
    here.see(PROMPT)
    here.type("more of that\r")
    here.see("Of cats again")
    said = [event["data"]["content"] for event in events(cli, "user", cats)]
    assert said == ["about cats", "more of that"]


def test_a_chat_that_goes_on_says_with_what(chat: Chat, script: Script, cli: Cli) -> None:
    cli("chat", "-q", "about\x1b[2J cats", "--replay", script(say("Of cats.")))
    here = chat("--replay", script(say("Of cats again.")), "--resume", "last")
    here.see(r"continuing .*: about\\x1b\[2J cats")
    here.see("Of cats")
    here.see(PROMPT)


def test_a_request_is_taken_back_sent_again_and_titled(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("First."), say("Second."), say("Third.")))
    for line, seen in (
        ("one\r", "First"),
        ("two\r", "Second"),
        ("/retry\r", "again: two"),
        ("/undo 2\r", "taken back: one"),
        ("/undo\r", "none can be taken back"),
        ("/undo x\r", "it should be a number"),
        ("/title Release notes\r", "title: Release notes"),
        ("/personality pirate\r", "there is no personality pirate"),
        ("/trust\r", "have no files for agents"),
    ):
        here.see(PROMPT)
        here.type(line)
        here.see(seen)
    assert [event["data"]["content"] for event in events(cli, "user")] == ["one", "two", "two"]
    (listed,) = cli.json("conversations", "list", "--json")
    assert listed["title"] == "Release notes"


def test_a_request_that_the_budget_refuses_is_not_taken_back(cli: Cli, chat: Chat) -> None:
    cli.configure("[agent]\nmost_cost = 1.0\n")
    with ScriptedEndpoint(["One."]) as rig:
        cli.env |= {"LLM_PROVIDER": "custom", "LLM_BASE_URL": rig.url, "DEFAULT_MODEL": "m"}
        cli.env["PROMPT_TOOLKIT_NO_CPR"] = "1"
        here = chat()
        here.see(PROMPT)
        here.type("one\r")
        here.see("One")
        here.see(PROMPT)
        here.type("/retry\r")
        here.see("a budget of dollars cannot be kept")
    assert not events(cli, "rewound")


def test_a_personality_begins_a_new_conversation(cli: Cli, chat: Chat, script: Script) -> None:
    cli.configure('[agent.personalities]\npirate = "Talk like a pirate."\n')
    here = chat("--replay", script(say("Arr.")))
    here.see(PROMPT)
    here.type("/personality pirate\r")
    here.see("a new conversation with the personality pirate")
    here.see(PROMPT)
    here.type("hello\r")
    here.see("Arr")
    assert "Talk like a pirate." in events(cli, "started")[0]["data"]["system"]


def test_a_conversation_is_written_to_a_new_file_for_its_owner_alone(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("An answer to keep.")))
    here.see(PROMPT)
    here.type("hello\r")
    here.see("An answer to keep")
    here.see(PROMPT)
    here.type("/export markdown kept.md\r")
    here.see("written to kept.md")
    here.see(PROMPT)
    kept = cli.cwd / "kept.md"
    assert private(kept)
    assert "An answer to keep." in kept.read_text()
    assert "scripted" in kept.read_text()
    here.type("/export markdown kept.md\r")
    here.see("File exists")


def test_a_request_that_is_typed_before_the_line_editor_is_loaded_is_sent(chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("Here.")))
    here.see(f"{PROMPT}\x1b\\[0m\r")
    assert b"\x1b[?2004h" not in here.shown  # which an editor writes first
    here.type("hello\r")
    here.see("Here")


def test_an_error_after_the_first_prompt_is_one_line_over_it(chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("Never.")), "--resume", "absent")
    here.see(f"{PROMPT}\x1b\\[0m\r")
    here.see("^\x1b\\[Khermes-exec: .*absent")
    assert here.end() == 2
