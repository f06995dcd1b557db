"""A file that gives orders to later programs is written with a person's approval alone, whatever is allowed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.tools.instruction_files import is_instruction_file
from tests.tools.conftest import Nobody, Somebody, agent_in

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = (
    "AGENTS.md", "sub/claude.md", ".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", ".mcp.json",
    ".claude/settings.json", "/home/me/.bashrc", ".zshenv", ".git", "a/.git/../x",
)  # fmt: skip


def test_files_that_give_orders_are_known_by_their_names() -> None:
    assert [each for each in ORDERS if not is_instruction_file(each)] == []
    ordinary = ("README.md", "agents.md.txt", "src/profile", ".gitignore", "git/hooks/x", "my.bashrc/x", "xAGENTS.md")
    assert [each for each in ordinary if is_instruction_file(each)] == []


def write(path: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": "changed\n"}


def add(path: str) -> tuple[str, dict[str, Any]]:
    return "patch", {"mode": "patch", "patch": f"*** Begin Patch\n*** Add File: {path}\n+changed\n*** End Patch"}


def move(path: str) -> tuple[str, dict[str, Any]]:
    text = f"*** Begin Patch\n*** Update File: a.txt\n*** Move to: {path}\n*** End Patch"
    return "patch", {"mode": "patch", "patch": text}


def replace(path: str) -> tuple[str, dict[str, Any]]:
    return "patch", {"mode": "replace", "path": path, "old_string": "old", "new_string": "changed"}


CALLS = [
    write("CLAUDE.md"),
    write(".git/../b.txt"),
    add(".git/hooks/post-merge"),
    move(".mcp.json"),
    replace("AGENTS.md"),
]


@pytest.mark.parametrize("says", [None, False, True])
@pytest.mark.parametrize("call", CALLS, ids=lambda each: each[0])
def test_writing_one_asks_once_whatever_is_allowed(
    tmp_path: Path, call: tuple[str, dict[str, Any]], says: bool | None
) -> None:
    for name in ("AGENTS.md", "a.txt"):
        (tmp_path / name).write_text("old\n")
    person: Any = Nobody() if says is None else Somebody(says=says)
    before = {each: each.read_text() for each in tmp_path.rglob("*") if each.is_file()}

    async def whole(mode: str) -> dict[str, Any]:
        async with agent_in("local", person, mode=mode) as agent:
            await agent.context.workspace.run(f"cd {tmp_path}", timeout=60)
            return await agent(call[0], **call[1])

    told = asyncio.run(whole("allow"))
    after = {each: each.read_text() for each in tmp_path.rglob("*") if each.is_file()}
    assert (told["ok"], after != before) == (bool(says), bool(says)), told
    if says is not None:
        ((tool, line),) = person.asked
        assert (tool, "which gives orders to later programs" in line) == (call[0], True)
    if says is False:
        asyncio.run(whole("ask"))
        assert len(person.asked) == 2  # once for each call


def test_other_files_are_written_as_allowed(tmp_path: Path) -> None:
    async def whole() -> dict[str, Any]:
        async with agent_in("local") as agent:
            return await agent("write_file", path=str(tmp_path / "README.md"), content="x")

    assert asyncio.run(whole())["ok"]
