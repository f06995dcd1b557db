"""Chats with scripts in the model's place: real processes, a real terminal, real tools."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, cli, nap, running, until
from tests.cli.screen import Screen

__all__ = ["cli", "nap", "running", "until"]

Reply = dict[str, Any]


def say(text: str) -> Reply:
    """A line of a script: the model answers."""
    return {"content": text}


def do(command: str, text: str = "") -> Reply:
    """A line of a script: the model asks for a command."""
    return {"content": text, "tool_calls": [{"name": "terminal", "arguments": {"command": command}}]}


@pytest.fixture
def script(cli: Cli) -> Callable[..., str]:
    """``script(say("hello"))`` writes one and gives its path."""
    cli.env["PROMPT_TOOLKIT_NO_CPR"] = "1"  # nobody answers where the cursor is

    def write(*lines: Reply) -> str:
        path = cli.cwd.parent / f"script{len(list(cli.cwd.parent.glob('script*')))}.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return str(path)

    return write


@pytest.fixture
def chat(cli: Cli, script: Callable[..., str]) -> Generator[Callable[..., Screen]]:
    """``chat("--replay", script(…))`` on a terminal."""
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> Screen:
            started = Screen(cli, "chat", *words)
            stack.callback(started.close)
            stack.callback(leave, started)
            return started

        yield start


def leave(screen: Screen) -> None:
    """End a chat that is still there in good order, so that its place is closed and not only left to its lease."""
    if screen.child.poll() is None:
        screen.child.terminate()
        screen.end()


def events(cli: Cli, kind: str = "", conversation: str = "last") -> list[dict[str, Any]]:
    """What is recorded of a conversation."""
    found: list[dict[str, Any]] = cli.json("conversations", "show", conversation, "--json")
    return [event for event in found if not kind or event["kind"] == kind]


def private(path: Path) -> bool:
    """Whether only its owner can read it."""
    return path.stat().st_mode & 0o777 == 0o600
