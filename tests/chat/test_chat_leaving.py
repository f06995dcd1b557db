"""What ends a chat, a turn or a command at a terminal, and what does not."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.chat.keyboard import Keyboard
from hermes_exec_agent.frontends.chat.session import INTERRUPTED
from hermes_exec_agent.models import say as say_so
from tests.chat.conftest import do, say
from tests.rigs.breadth import thorough
from tests.rigs.endpoint import KEY, ScriptedEndpoint, Streamed

if TYPE_CHECKING:
    import pytest

    from tests.cli.conftest import Cli
    from tests.cli.screen import Screen

Chat = Callable[..., "Screen"]
Script = Callable[..., str]
PROMPT = "you> "
_STUCK = """
import asyncio
from hermes_exec_agent.frontends.chat.screen import ScreenDisplay
from hermes_exec_agent.frontends.chat.session import on_interrupt

async def main():
    screen = ScreenDisplay()
    with on_interrupt(lambda: print("told", flush=True)):
        screen.begin(scripted=False)
        print("begun", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_ctrl_c_clears_what_was_typed_and_leaves_when_there_is_nothing(cli: Cli, chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("Never.")))
    here.see(PROMPT)
    here.type("never sent")
    here.see("never sent")
    here.type("\x03")
    here.type("\x03")
    here.see("Ctrl-C once more leaves")
    here.type("\x03")
    assert here.end() == 0
    assert cli.json("conversations", "list", "--json") == []


def test_ctrl_c_at_once_after_a_request_ends_its_turn(chat: Chat, script: Script) -> None:
    here = chat("--replay", script(do("sleep 60"), say("Never.")), "--approve", "allow")
    here.see(PROMPT)
    here.type("first")
    here.see("first")
    here.type("\r\x03")  # while the prompt still has the keyboard
    here.see(r"\[interrupted\]")
    here.see(PROMPT)
    here.type("/quit\r")
    assert here.end() == 0


def test_the_way_out_can_be_typed_while_a_turn_runs(cli: Cli, chat: Chat, script: Script) -> None:
    flag = cli.cwd / "go"
    words = script(do(f"until test -e {flag}; do sleep 0.05; done"), say("One."))
    here = chat("--replay", words, "--approve", "allow")
    here.see(PROMPT)
    here.type("first\r")
    here.see("terminal  until test")
    here.type("\x04")
    flag.touch()
    here.see("One")
    assert here.end() == 0


def test_a_terminal_is_given_back_by_who_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(theirs)
        with Keyboard().hold_input():
            assert termios.tcgetattr(theirs) != before
            Keyboard.restore()
            assert termios.tcgetattr(theirs) == before
        assert termios.tcgetattr(theirs) == before


def test_the_cursor_is_given_back_by_who_leaves_at_once() -> None:
    """While a turn waits, it is hidden; and this turn does not end."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen, os.fdopen(theirs, "wb") as terminal:
        argv, env = [sys.executable, "-c", _STUCK], {**os.environ, "TERM": "xterm"}
        run = subprocess.Popen(argv, env=env, stdin=terminal, stdout=terminal, stderr=terminal)
        seen = b""
        for awaited in (b"begun", b"told", b"again to exit"):
            while awaited not in seen:
                seen += screen.read(4096)
            run.send_signal(signal.SIGINT)
        assert run.wait(30) == INTERRUPTED
        while not seen.endswith(b"\x1b[?25h") and select.select([screen], [], [], 5)[0]:
            seen += screen.read(4096)
        assert b"\x1b[?25l" in seen
        assert seen.endswith(b"\x1b[?25h")


@thorough
def test_ctrl_c_ends_a_command_and_not_the_chat(cli: Cli, chat: Chat) -> None:
    cli.env |= {"OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m", "PROMPT_TOOLKIT_NO_CPR": "1"}
    summary = Streamed(say_so("They talked."), hang=0)
    with ScriptedEndpoint(["word " * 400, "word " * 400, summary, "Still here."]) as rig:
        cli.env["LLM_BASE_URL"] = rig.url
        here = chat()
        for typed in ("say words", "say more"):
            here.see(PROMPT)
            here.type(f"{typed}\r")
            here.see("word word")
        here.see(PROMPT)
        here.type("/compact\r")
        assert rig.hanging.wait(60)
        here.type("\x03")
        here.see(r"\[interrupted\]")
        assert rig.left.wait(60)
        here.see(PROMPT)
        here.type("hello\r")
        here.see("Still here")


@thorough
def test_a_chat_without_a_state_folder_forgets_what_was_typed_and_works(cli: Cli, chat: Chat, script: Script) -> None:
    cli.env |= {"HERMES_EXEC_CONVERSATIONS": str(cli.cwd / "log.sqlite")}
    (cli.cwd.parent / "state").write_text("no folder")
    here = chat("--replay", script(say("Here.")))
    here.see(PROMPT)
    here.type("hello\r")
    here.see("Here")


@thorough
def test_a_chosen_model_stays_chosen_in_the_next_conversation(cli: Cli, chat: Chat) -> None:
    cli.env["PROMPT_TOOLKIT_NO_CPR"] = "1"
    with ScriptedEndpoint(["Of the small one."]) as rig:
        tables = (f'[models.{name}]\nprovider = "custom"\nbase_url = "{rig.url}"\nmodel = "{model}"\n'
                  for name, model in (("main", "big"), ("box", "small")))  # fmt: skip
        cli.configure("".join(tables))
        here = chat()
        for typed, seen in (("/model box", "model: small"), ("/new", "a new conversation"), ("/model", r"\* box")):
            here.see(PROMPT)
            here.type(f"{typed}\r")
            here.see(seen)
        here.see(PROMPT)
        here.type("hello\r")
        here.see("Of the small one")
        here.see(PROMPT)
        here.type("/model main\r")
        here.see("model: big")
    assert [request["model"] for request in rig.requests] == ["small"]


def test_a_place_that_cannot_be_opened_is_told_and_the_chat_goes_on(chat: Chat, script: Script) -> None:
    here = chat("--replay", script(say("Never.")), "--on", "ssh://nobody@127.0.0.1:1")
    here.see(PROMPT)
    here.type("hello\r")
    here.see("hermes-exec: ")
    here.see(PROMPT)
    here.type("\x04")
    assert here.end() == 0
