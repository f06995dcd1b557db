"""What is typed while a turn runs: it is queued, or steers the turn."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import ask
from hermes_exec_agent.models import say as say_so
from tests.chat.conftest import do, events, say
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.models.protocol import Reply
    from tests.cli.conftest import Cli
    from tests.cli.screen import Screen

Chat = Callable[..., "Screen"]
Script = Callable[..., str]
Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]
PROMPT = "you> "


@pytest.fixture
def gate(cli: Cli) -> Path:
    """A pipe: a command that reads it runs until the test writes to it."""
    path = cli.cwd.parent / "gate"
    os.mkfifo(path)
    return path


def open_gate(gate: Path) -> None:
    """Let the command end."""
    gate.write_text("\n")


def test_a_line_is_shown_as_queued_and_sent_after_the_turn(cli: Cli, chat: Chat, script: Script, gate: Path) -> None:
    path = script(do(f"cat {gate}"), say("One."), say("Two."), say("Three."))
    here = chat("--replay", path, "--approve", "allow")
    here.see(PROMPT)
    here.type("first\r")
    here.see("terminal  cat")
    here.type("seco")
    here.see("> seco")
    here.type("nd\x7fd\r")
    here.see("queued: second")
    here.type("\x1b[200~third\rwith a line\x1b[201~\r")
    here.see("queued: third with a line")
    open_gate(gate)
    here.see("One")
    here.see("you> second")
    here.see("Two")
    here.see("you> third")
    here.see("Three")
    here.see(PROMPT)
    assert [event["data"]["content"] for event in events(cli, "user")] == ["first", "second", "third\nwith a line"]


def test_an_incomplete_line_goes_on_at_the_prompt(cli: Cli, chat: Chat, script: Script, gate: Path) -> None:
    here = chat("--replay", script(do(f"cat {gate}"), say("One."), say("Two.")))
    here.see(PROMPT)
    here.type("first\r")
    here.see(r"\x1b\[\?2004l[^\x1b]*Allow.*: ")  # marks of pasted text would be a part of the answer
    here.type("y\r")
    here.see("terminal  cat")  # the call that runs is shown again
    here.type("sec")
    here.see("> sec")
    open_gate(gate)
    here.see("One")
    here.see("you> .*sec")
    here.type("ond\r")
    here.see("Two")
    assert [event["data"]["content"] for event in events(cli, "user")] == ["first", "second"]


def test_a_turn_is_steered_after_its_next_call(cli: Cli, chat: Chat, script: Script, gate: Path) -> None:
    here = chat("--replay", script(do(f"cat {gate}"), say("As you say.")), "--approve", "allow")
    here.see(PROMPT)
    here.type("go\r")
    here.see("terminal  cat")
    here.type("/steer write it in French\r")
    here.see("after the next call the model reads: write it in French")
    open_gate(gate)
    here.see("the model reads: write it in French")
    here.see("As you say")
    here.see(PROMPT)
    assert [event["kind"] for event in events(cli)][-3:] == ["result", "steered", "assistant"]
    exported = cli("conversations", "export", "last", "--format", "messages").stdout.decode()
    assert "[notice of the agent's program] The person says, while you work: write it in French" in exported
    found = cli("conversations", "search", "French")
    assert b"French" in found.stdout


def test_steering_without_a_turn_is_a_request(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(do("touch made"), say("Done."), say("In French.")))
    here.see(PROMPT)
    here.type("/steer begin\r")
    here.see(r"Allow\?")
    here.type("y\r")
    here.see("Done")
    here.see(PROMPT)
    assert [event["data"]["content"] for event in events(cli, "user")] == ["begin"]
    assert not events(cli, "steered")


def test_commands_that_only_show_run_during_the_turn(
    chat: Chat, script: Script, gate: Path, nap: str, running: Running, until: Until
) -> None:
    start = {"tool_calls": [{"name": "terminal", "arguments": {"command": nap, "background": True}}]}
    here = chat("--replay", script(start, do(f"cat {gate}"), say("One."), say("Two.")), "--approve", "allow")
    here.see(PROMPT)
    here.type("first\r")
    here.see("terminal  cat")
    here.type("/status\r")
    here.see(r"window +\d+% of")
    here.see(re.escape(nap))
    here.type("/stop\r")
    here.see("ended: ")
    until(lambda: not running(nap))
    here.type("/title Later\r")
    here.see("queued: /title Later")
    open_gate(gate)
    here.see("One")
    here.see("title: Later")


def test_ctrl_c_drops_the_queue_and_says_so(
    cli: Cli, chat: Chat, script: Script, running: Running, until: Until, nap: str
) -> None:
    here = chat("--replay", script(do(nap), say("Still here.")), "--approve", "allow")
    here.see(PROMPT)
    here.type("first\r")
    until(lambda: running(nap))
    here.type("second\r/steer faster\r")
    here.see("the model reads: faster")
    here.type("\x03")
    here.see(r"\[interrupted\]")
    here.see("not sent: faster")
    here.see("not sent: second")
    here.see(PROMPT)
    here.type("third\r")
    here.see("Still here")
    assert [event["data"]["content"] for event in events(cli, "user")] == ["first", "third"]


def test_ctrl_d_during_a_turn_leaves_after_it(chat: Chat, script: Script, gate: Path) -> None:
    here = chat("--replay", script(do(f"cat {gate}"), say("One."), say("Two.")), "--approve", "allow")
    here.see(PROMPT)
    here.type("first\r")
    here.see("terminal  cat")
    here.type("second\r\x04")
    here.see("queued: second")
    open_gate(gate)
    here.see("Two")
    here.see("To continue")
    assert here.end() == 0


def delegating(cli: Cli, arguments: dict[str, Any], child: Callable[[str, bool], Reply]) -> ScriptedEndpoint:
    """A model that delegates ``arguments`` once; ``child`` gives the replies of a task, before and after its call."""

    def answer(body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]
        request = next(each["content"] for each in body["messages"] if each["role"] == "user")
        if any(tool["function"]["name"] == "delegate_task" for tool in body["tools"]):
            is_first = last["role"] == "user" and request.startswith("go")
            return ask(("delegate_task", arguments)) if is_first else say_so("All of them.")
        return child(request, last["role"] == "tool")

    rig = ScriptedEndpoint([answer], forever=True)
    cli.env |= {"OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m", "PROMPT_TOOLKIT_NO_CPR": "1", "LLM_BASE_URL": rig.url}
    return rig


def test_the_lines_of_several_tasks_are_indented_and_name_their_task(cli: Cli, chat: Chat) -> None:
    def child(request: str, done: bool) -> Reply:
        return say_so("Done.") if done else ask(("terminal", {"command": f"echo {request}"}))

    with delegating(cli, {"tasks": ["one", "two"]}, child):
        here = chat("--approve", "allow")
        here.see(PROMPT)
        here.type("go\r")
        here.see("(?s)(?=.*\n.*  1 one: terminal  echo one)(?=.*\n.*  2 two: terminal  echo two).*Task 2:.*All of them")


def test_ctrl_c_ends_the_tasks_of_a_turn_and_stop_those_in_the_background(
    cli: Cli, chat: Chat, nap: str, running: Running, until: Until
) -> None:
    def child(_: str, done: bool) -> Reply:
        return say_so("Done.") if done else ask(("terminal", {"command": nap}))

    with delegating(cli, {"tasks": ["one", "two"]}, child):
        here = chat("--approve", "allow")
        here.see(PROMPT)
        here.type("go\r")
        until(lambda: len(running(nap)) >= 2)
        here.type("\x03")
        here.see(r"\[interrupted\]")
        until(lambda: not running(nap))
    with delegating(cli, {"goal": "one", "background": True}, child):
        here = chat("--approve", "allow")
        here.see(PROMPT)
        here.type("go\r")
        here.see("All of them")
        until(lambda: running(nap))
        here.see(PROMPT)
        here.type("/status\r")
        here.see('task-1: "one"')
        here.see(PROMPT)
        here.type("/stop\r")
        here.see('ended: task-1: "one"')
        until(lambda: not running(nap))
