"""Two programs and one conversation: one turn at a time, and branches beside it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import ask, say
from tests.chat.conftest import events
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.breadth import thorough
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Reply
    from tests.cli.conftest import Cli
    from tests.cli.screen import Screen

Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]
BEFORE = "(This branch of the conversation began before the answer.)"
ASK = ("chat", "--approve", "allow", "-q")


class Held:
    """A reply that waits until it is let go."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked = threading.Event()
        self.go = threading.Event()

    def __call__(self, _: dict[str, Any]) -> Reply:
        self.asked.set()
        assert self.go.wait(PATIENCE_S)
        return say(self.text)


@pytest.fixture
def with_model(cli: Cli) -> Callable[[ScriptedEndpoint], None]:
    """Have the command ask this endpoint."""

    def use(rig: ScriptedEndpoint) -> None:
        cli.env |= {"OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m", "LLM_BASE_URL": rig.url, "PROMPT_TOOLKIT_NO_CPR": "1"}

    return use


def said(request: dict[str, Any]) -> list[str]:
    """What a model was sent, without the system's message."""
    return [message["content"] for message in request["messages"][1:]]


def test_a_second_program_is_refused_during_a_turn_and_its_branch_is_not(
    cli: Cli, with_model: Callable[[ScriptedEndpoint], None]
) -> None:
    held = Held("Two.")
    with ScriptedEndpoint(["One.", held, "Of the branch.", "Three."]) as rig:
        with_model(rig)
        assert cli(*ASK, "one").stdout == b"One.\n"
        first = cli.start(*ASK, "two", "--continue")
        assert held.asked.wait(PATIENCE_S)
        refused = cli(*ASK, "three", "--continue")
        assert (refused.returncode, refused.stdout) == (2, b"")
        (line,) = refused.stderr.decode().splitlines()
        assert f"a turn of it runs in process {first.pid} on {os.uname().nodename}, since 20" in line
        assert line.endswith(
            "Try: again when that has ended, or a branch of what is recorded: --fork, in a chat /branch"
        )
        branch = cli(*ASK, "four", "--continue", "--fork")
        assert (branch.returncode, branch.stdout) == (0, b"Of the branch.\n"), branch.stderr
        held.go.set()
        assert first.communicate(timeout=PATIENCE_S)[0] == b"Two.\n"
        assert cli(*ASK, "three", "--continue").stdout == b"Three.\n"
    assert not rig.complaints
    assert said(rig.requests[2]) == ["one", "One.", "two", BEFORE, "four"]
    assert said(rig.requests[3]) == ["one", "One.", "two", "Two.", "three"]
    listed = cli.json("conversations", "list", "--json")
    assert [each["title"] for each in listed] == ["one", "four"]
    assert [event["kind"] for event in events(cli)] == ["started", *["user", "assistant"] * 3]
    (started,) = events(cli, "started", listed[1]["id"])
    assert started["data"]["branch_of"] == {"conversation": listed[0]["id"], "upto": 4}


@thorough
def test_a_killed_program_lets_the_next_one_go_on_at_once(
    cli: Cli, with_model: Callable[[ScriptedEndpoint], None], nap: str, running: Running, until: Until
) -> None:
    with ScriptedEndpoint([ask(("terminal", {"command": nap})), "Of the branch.", "I see."]) as rig:
        with_model(rig)
        first = cli.start(*ASK, "one")
        until(lambda: running(nap))
        assert cli(*ASK, "two", "--continue").returncode == 2
        assert cli(*ASK, "two", "--continue", "--fork").returncode == 0
        first.kill()
        first.wait()
        done = cli(*ASK, "three", "--resume", listed_first(cli))
        assert (done.returncode, done.stdout) == (0, b"I see.\n"), done.stderr
    assert not rig.complaints
    assert said(rig.requests[1])[2].startswith("unknown: this branch of the conversation began while this ran.")
    assert said(rig.requests[2])[2].startswith("unknown: the agent's program ended while this ran.")


def listed_first(cli: Cli) -> str:
    """The conversation that began first."""
    ids = [each["id"] for each in cli.json("conversations", "list", "--json")]
    return str(ids[-1])


@thorough
def test_a_chat_beside_a_turn_is_told_and_goes_on_afterwards_or_in_a_branch(
    cli: Cli, chat: Callable[..., Screen], with_model: Callable[[ScriptedEndpoint], None]
) -> None:
    held = Held("Two.")
    with ScriptedEndpoint(["One.", held, "Three.", "Of the branch."]) as rig:
        with_model(rig)
        here = chat("--approve", "allow")
        here.see("you> ")
        here.type("one\r")
        here.see("One")
        here.see("you> ")
        first = cli.start(*ASK, "two", "--continue")
        assert held.asked.wait(PATIENCE_S)
        here.type("three\r")
        here.see(f"a turn of it runs in process {first.pid}")
        here.see("you> ")
        held.go.set()
        first.wait(PATIENCE_S)
        here.type("three\r")
        here.see("Three")
        here.see("you> ")
        here.type("/fork\r")
        here.see("new conversation from ")
        here.see("you> ")
        here.type("four\r")
        here.see("Of the branch")
    assert not rig.complaints
    assert said(rig.requests[2]) == ["one", "One.", "two", "Two.", "three"]
    assert said(rig.requests[3]) == ["one", "One.", "two", "Two.", "three", "Three.", "four"]
    assert json.dumps(cli.json("conversations", "list", "--json")).count('"id"') == 2


def test_a_branch_needs_a_conversation(cli: Cli, script: Callable[..., str]) -> None:
    done = cli("chat", "-q", "go", "--fork", "--replay", script({"content": "Never."}))
    assert done.returncode == 2
    assert b"--fork needs a conversation to start from" in done.stderr
