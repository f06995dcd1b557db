"""What a chat shows about its conversation, and what it ends, copies and branches."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.chat.conftest import do, events, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.cli.screen import Screen

Chat = Callable[..., "Screen"]
Script = Callable[..., str]
Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]
PROMPT = "you> "


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A line of a script: the model calls a tool."""
    return {"content": "", "tool_calls": [{"name": name, "arguments": arguments}]}


def test_status_and_context_show_what_the_conversation_uses(chat: Chat, script: Script) -> None:
    here = chat("--replay", script(do("seq 2000"), say("Counted.")), "--approve", "allow")
    here.see(PROMPT)
    here.type("/usage\r")
    here.see(r"cost \$0.0000")  # nothing was asked yet
    here.see(PROMPT)
    here.type("count\r")
    here.see("Counted")
    here.see(PROMPT)
    here.type("/status\r")
    here.see(r"model +script")
    here.see(r"target +local")
    here.see(r"window +\d+% of [\d,]+ tokens used")
    here.see(r"cost +unknown, for [\d,]+ tokens read and [\d,]+ written")
    here.see("none runs in the background")
    here.see(PROMPT)
    here.type("/context\r")
    parts = [here.see(rf"{name} +([\d,]+) +\d+%").group(1) for name in (
        "system message", "descriptions of tools", "requests and notices", "replies and calls", "results of tools",
    )]  # fmt: skip
    assert int(parts[-1].replace(b",", b"")) > 1500
    here.see(r"free +[\d,]+ +\d+%")


def test_stop_ends_background_processes_and_the_model_reads_it(
    cli: Cli, chat: Chat, script: Script, running: Running, until: Until, nap: str
) -> None:
    path = script(call("terminal", command=nap, background=True), say("Started."), say("I see."))
    here = chat("--replay", path, "--approve", "allow")
    here.see(PROMPT)
    here.type("/stop\r")
    here.see("no background process of this conversation runs")
    here.see(PROMPT)
    here.type("start it\r")
    here.see("Started")
    until(lambda: running(nap))
    here.see(PROMPT)
    here.type("/status\r")
    here.see(rf"processes\s+[\w-]+: {re.escape(nap)}")
    here.see(PROMPT)
    here.type("/stop\r")
    here.see(rf"ended: [\w-]+: {re.escape(nap)}")
    until(lambda: not running(nap))
    here.see(PROMPT)
    here.type("and now?\r")
    here.see("I see")
    (part,) = events(cli, "user")[-1]["data"]["parts"]
    assert part["content"].startswith("The person ended what ran in the background:\n")
    assert nap in part["content"]


def test_the_list_of_the_model_is_shown(chat: Chat, script: Script) -> None:
    items = [{"content": "look", "status": "completed"}, {"content": "act\x1b[2J"}]
    here = chat("--replay", script(call("todo", todos=items), say("Planned.")))
    here.see(PROMPT)
    here.type("/todo\r")
    here.see("the model keeps no to-do list")
    here.see(PROMPT)
    here.type("plan\r")
    here.see("Planned")
    here.see(PROMPT)
    here.type("/todo\r")
    here.see(r"1\. \[x\] look")
    here.see(r"2\. \[ \] act\\x1b\[2J")


def test_an_answer_is_copied_by_the_terminal(cli: Cli, chat: Chat, script: Script) -> None:
    cli.env.pop("DISPLAY", None)
    cli.env.pop("WAYLAND_DISPLAY", None)
    here = chat("--replay", script(say("First **answer**.\x1b[2J"), say("Second.")))
    here.see(PROMPT)
    here.type("/copy\r")
    here.see("the context has 0 answers")
    for line, seen in (("one\r", "First"), ("two\r", "Second"), ("/copy 2\r", "copied")):
        here.see(PROMPT)
        here.type(line)
        if line.startswith("/copy"):
            taken = here.see(r"\x1b\]52;c;([\w+/=]+)\x07").group(1)
            assert base64.b64decode(taken) == b"First **answer**.\\x1b[2J"
        here.see(seen)


def test_an_answer_is_copied_by_a_program_of_the_desktop(cli: Cli, chat: Chat, script: Script) -> None:
    folder = cli.cwd.parent / "desktop"
    folder.mkdir()
    (folder / "wl-copy").write_text(f"#!/bin/sh\ncat > {folder}/taken\n")
    (folder / "wl-copy").chmod(0o755)
    cli.env |= {"WAYLAND_DISPLAY": "wayland-0", "PATH": f"{folder}:{cli.env['PATH']}"}
    here = chat("--replay", script(say("The answer.")))
    here.see(PROMPT)
    here.type("one\r")
    here.see("The answer")
    here.see(PROMPT)
    here.type("/copy\r")
    here.see("copied 11 characters to the clipboard, by wl-copy")
    assert (folder / "taken").read_text() == "The answer."


def test_a_branch_begins_with_what_was_said_and_leaves_its_origin_unchanged(
    cli: Cli, chat: Chat, script: Script
) -> None:
    here = chat("--replay", script(say("First."), say("Second."), say("Third.")))
    here.see(PROMPT)
    here.type("one\r")
    here.see("First")
    here.see(PROMPT)
    here.type("/branch Another way\r")
    origin = here.see(r"new conversation from (\d{8}-\d{6}-\w{8}): Another way").group(1).decode()
    here.see(PROMPT)
    here.type("two\r")
    here.see("Second")
    here.see(PROMPT)
    here.type("/quit\r")
    assert here.end() == 0
    started = events(cli, "started")[0]["data"]
    assert started["branch_of"]["conversation"] == origin
    assert [each["content"] for each in started["history"]] == ["one", "First."]
    assert [event["data"]["content"] for event in events(cli, "user", origin)] == ["one"]
    titles = {each["id"]: each["title"] for each in cli.json("conversations", "list", "--json")}
    assert titles.pop(origin) == "one"
    assert list(titles.values()) == ["Another way"]
