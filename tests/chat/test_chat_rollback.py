"""``/rollback`` in a chat, and ``conversations rollback`` without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chat.conftest import do, events, say

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.cli.screen import Screen

Chat = Callable[..., "Screen"]
Script = Callable[..., str]
PROMPT = "you> "


def write(path: str, content: str) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"name": "write_file", "arguments": {"path": path, "content": content}}]}


def test_turns_are_listed_and_rolled_back_in_a_chat(cli: Cli, chat: Chat, script: Script) -> None:
    (cli.cwd / "a").write_text("old")
    replies = script(write("a", "new"), say("Done."), write("b", "new"), do("echo 1 > c"), say("Done again."))
    here = chat("--replay", replies, "--approve", "allow")
    for line, seen in (
        ("one\r", "Done."),
        ("two\r", "Done again."),
        ("/rollback\r", "not covered: changes of commands in"),
        ("/rollback 2\r", "removed: "),
        ("/rollback x\r", "/rollback N"),
        ("/rollback 9\r", "there is no turn 9"),
        ("/rollback 1\r", "restored: "),
    ):
        here.see(PROMPT)
        here.type(line)
        here.see(seen)
    assert (cli.cwd / "a").read_text() == "old"
    assert not (cli.cwd / "b").exists()
    assert [each["data"]["upto"] for each in events(cli, "files") if each["data"]["what"] == "rollback"] == [2, 1]


def test_a_conversation_is_rolled_back_without_a_chat(cli: Cli, script: Script) -> None:
    (cli.cwd / "a").write_text("old")
    replies = script(write("a", "new"), say("Done."))
    assert cli("chat", "-q", "change it", "--replay", replies, "--approve", "allow").returncode == 0
    assert (cli.cwd / "a").read_text() == "new"
    done = cli("conversations", "rollback", "last")
    assert done.returncode == 0, done.stderr
    listed = done.stdout.decode()
    assert "1 file" in listed
    assert "change it" in listed
    (cli.cwd / "a").write_text("mine")
    refused = cli("conversations", "rollback", "last", "1")
    assert (refused.returncode, (cli.cwd / "a").read_text()) == (2, "mine")
    assert b"changed since the agent's last change" in refused.stderr
    assert cli("conversations", "rollback", "last", "1", "--force").returncode == 0
    assert (cli.cwd / "a").read_text() == "old"
    assert cli("conversations", "rollback", "last", "2").returncode == 0
    assert (cli.cwd / "a").read_text() == "mine"


def test_nothing_is_kept_if_that_is_turned_off(cli: Cli, script: Script) -> None:
    cli.configure("[agent]\nkeep_files = false\n")
    (cli.cwd / "a").write_text("old")
    replies = script(write("a", "new"), do("true"), say("Done."))
    assert cli("chat", "-q", "change it", "--replay", replies, "--approve", "allow").returncode == 0
    assert (cli.cwd / "a").read_text() == "new"
    assert events(cli, "files") == []
    assert not list(Path(cli.env["HOME"]).rglob("kept"))
