"""Rolling files back: kept before a turn changes them, restored byte for byte, and never at a person's expense."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import UsageError
from hermes_exec_agent.models import Models, ScriptedModel, ask
from hermes_exec_agent.runtime import Conversation
from hermes_exec_agent.tools import file_scripts
from hermes_exec_agent.tools.dispatch import perform
from hermes_exec_agent.tools.file_checkpoints import FileCheckpoints
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools
from tests.conftest import require_part
from tests.runtime.conftest import Nobody

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from hermes_exec_agent.models.scripted import ScriptEntry
    from hermes_exec_agent.runtime.events import EventLog

ODD = ["plain.txt", "two words", "quote'\"$(x)`", "line\nbreak", "-rf", "tab\t\\n", "ümläut", "deep/er/file", "*?[a]"]


@asynccontextmanager
async def talking(
    log: EventLog, folder: Path, replies: list[ScriptEntry], resume: str = "", **options: Any
) -> AsyncGenerator[Conversation]:
    env = {"XDG_STATE_HOME": str(folder.parent / "state"), **options.pop("env", {})}
    async with await hermes_exec.open("local", cwd=str(folder), env=env, **options) as terminal:
        context = Context(terminal, "local", Nobody(), resume, approvals=Approvals("allow"))
        context.checkpoints = FileCheckpoints(terminal)
        context.tools = create_tools(context)
        models = Models(ScriptedModel(replies))
        conversation = Conversation(models=models, tools=context.tools, context=context, log=log)
        await conversation.begin()
        try:
            yield conversation
        finally:
            await context.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder that is no work tree; what is kept goes to a folder beside it."""
    (folder := tmp_path / "work").mkdir()
    return folder


@pytest.fixture
def tree(work: Path) -> Path:
    subprocess.run([require_part("git"), "init", "-q", work], check=True)
    return work


def look(folder: Path) -> dict[str, tuple[str, object]]:
    """All files and links below a folder, with their modes and contents; the repository itself excepted."""
    found: dict[str, tuple[str, object]] = {}
    for above, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each != ".git"]
        for each in [*files, *(name for name in folders if os.path.islink(os.path.join(above, name)))]:
            path = os.path.join(above, each)
            if os.path.islink(path):
                found[os.path.relpath(path, folder)] = ("link", os.readlink(path))
            else:
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = (oct(os.stat(path).st_mode & 0o7777), file.read())
    return found


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


def run(command: str) -> tuple[str, dict[str, Any]]:
    return "terminal", {"command": command}


@pytest.fixture(params=["guest", "plain", "busybox"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Options of a target with Python, of one without it, and of one whose programs are those of BusyBox, too."""
    if request.param == "guest":
        return {}
    if request.param == "plain":
        return {"carrier": "plain"}
    if (busybox := shutil.which("busybox")) is None:
        pytest.skip("there is no busybox")
    (programs := tmp_path / "bin").mkdir()
    for each in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        (programs / each).symlink_to(busybox)
    (programs / "git").symlink_to(require_part("git"))
    (programs / "bash").symlink_to("/bin/bash")
    return {"carrier": "plain", "env": {"PATH": str(programs)}}


def test_what_tools_wrote_is_restored_byte_for_byte_with_its_mode(
    work: Path, log: EventLog, options: dict[str, Any]
) -> None:
    for index, name in enumerate(ODD):
        (path := work / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{index}\r\nold\n".encode() * 100 + "ß".encode())
        path.chmod([0o600, 0o755, 0o644, 0o444][index % 4])
    before = look(work)

    async def whole() -> list[str]:
        calls = ask(*(write(name, "new") for name in ODD), write("made/here/new.txt", "x"))
        change = "*** Begin Patch\n*** Delete File: plain.txt\n*** Add File: more.txt\n+x\n*** End Patch"
        later = ask(("patch", {"mode": "patch", "patch": change}), write("two words", "again"))
        async with talking(log, work, [calls, "One.", later, "Two."], **options) as conversation:
            await conversation.ask("one")
            between = look(work)
            await conversation.ask("two")
            assert [len(step.paths) for step in await conversation.list_steps()] == [len(ODD) + 1, 3]
            after = look(work)
            await conversation.rollback(2)
            assert look(work) == between
            await conversation.rollback(1)
            assert look(work) == before
            assert not (work / "made").exists()
            await conversation.rollback(3)
            assert look(work) == after
            return (await conversation.rollback(1)).describe()

    assert sum(line.startswith("restored: ") for line in asyncio.run(whole())) == len(ODD)
    assert look(work) == before


def test_a_file_that_a_person_changed_since_is_not_overwritten(work: Path, log: EventLog) -> None:
    (work / "a").write_text("old a")
    (work / "b").write_text("old b")

    async def whole() -> None:
        async with talking(log, work, [ask(write("a", "new"), write("b", "new")), "Done."]) as conversation:
            await conversation.ask("change")
            (work / "a").write_text("mine")
            with pytest.raises(UsageError, match=r"/a; nothing was restored.*--force"):
                await conversation.rollback(1)
            assert ((work / "a").read_text(), (work / "b").read_text()) == ("mine", "new")
            await conversation.rollback(1, force=True)
            assert ((work / "a").read_text(), (work / "b").read_text()) == ("old a", "old b")
            await conversation.rollback(2)
            assert ((work / "a").read_text(), (work / "b").read_text()) == ("mine", "new")

    asyncio.run(whole())


def test_a_damaged_content_is_refused(work: Path, log: EventLog, tmp_path: Path) -> None:
    (work / "a").write_text("old")

    async def whole() -> None:
        async with talking(log, work, [ask(write("a", "new")), "Done."]) as conversation:
            await conversation.ask("change")
            for each in (tmp_path / "state/hermes_exec/kept/blobs").iterdir():
                each.write_text("evil")
            report = await conversation.rollback(1)
            assert ["damaged" in line for line in report.failed] == [True]

    asyncio.run(whole())
    assert look(work) == {"a": ("0o644", b"new")}


def test_what_was_not_kept_is_listed_with_the_reason(work: Path, log: EventLog) -> None:
    with (work / "large").open("wb") as file:
        file.truncate(65 << 20)

    async def whole() -> list[str]:
        calls = ask(write("large", "small"), run("echo x > y"))
        async with talking(log, work, [calls, "Done."]) as conversation:
            await conversation.ask("change")
            (step,) = await conversation.list_steps()
            return step.list_uncovered()

    commands, large = asyncio.run(whole())
    assert "no git work tree" in commands
    assert large.endswith("/large: it has more than 64 MiB")


def test_links_are_followed_as_the_write_does(work: Path, log: EventLog) -> None:
    (work / "real").write_text("old")
    (work / "link").symlink_to("real")

    async def whole() -> None:
        async with talking(log, work, [ask(write("link", "new")), "Done."]) as conversation:
            await conversation.ask("change")
            assert (work / "real").read_text() == "new"
            await conversation.rollback(1)

    asyncio.run(whole())
    assert look(work) == {"real": ("0o644", b"old"), "link": ("link", "real")}


def test_a_link_to_another_folder_is_replaced_and_not_followed(tree: Path, log: EventLog) -> None:
    for name in ("old", "new"):
        (tree / name).mkdir()
        (tree / name / "file").write_text(name)
    (tree / "link").symlink_to("old")
    before = look(tree)

    async def whole() -> None:
        async with talking(log, tree, [ask(run("ln -sfn new link")), "Done."]) as conversation:
            await conversation.ask("change")
            assert str((tree / "link").readlink()) == "new"
            await conversation.rollback(1)

    asyncio.run(whole())
    assert look(tree) == before


def test_changes_of_commands_in_a_work_tree_are_restored(tree: Path, log: EventLog, options: dict[str, Any]) -> None:
    (tree / ".gitattributes").write_text("* text=auto eol=crlf ident working-tree-encoding=UTF-16\n*.f filter=evil\n")
    (tree / ".gitignore").write_text("ignored\n")
    (tree / "ignored").write_text("old")
    (tree / "crlf.txt").write_bytes(b"a\r\nb\nc\r\n$Id$\n")
    (tree / "x.f").write_bytes(bytes(range(256)) * 300)
    (tree / "key").write_bytes(b"\0secret")
    (tree / "key").chmod(0o600)
    (tree / "link").symlink_to("no where\n")
    for name in ODD:
        (path := tree / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    with open(os.fsencode(tree) + b"/\xff\xfe", "wb") as file:
        file.write(b"odd")
    before = look(tree)

    async def whole() -> None:
        script = (
            'for each in *; do [ -d "$each" ] || [ "$each" = ignored ] || rm -- "$each"; done; mkdir plain.txt; '
            "echo 1 > plain.txt/in; rm -r deep; echo 2 > deep; echo new > new; chmod +x new; echo 3 > ignored"
        )
        calls = ask(run(script), write("plain.txt/in", "written"), write("crlf.txt", "x"))
        async with talking(log, tree, [calls, "Done."], **options) as conversation:
            await conversation.ask("change")
            after = look(tree)
            assert after["plain.txt/in"][1] == b"written"
            report = await conversation.rollback(1)
            assert (report.failed, report.uncovered) == ((), ())
            assert look(tree) == before | {"ignored": ("0o644", b"3\n")}
            await conversation.rollback(2)
            assert look(tree) == after

    asyncio.run(whole())


def test_the_configuration_of_a_repository_runs_nothing(tree: Path, log: EventLog, tmp_path: Path) -> None:
    (tree / "a.f").write_text("old")
    subprocess.run(["git", "init", "-q", tree / "nested"], check=True)
    (tree / "nested/b").write_text("b")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git, "add", "."], cwd=tree / "nested", check=True)
    subprocess.run([*git, "commit", "-qm", "x"], cwd=tree / "nested", check=True)
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    evil.chmod(0o755)
    (tree / ".gitattributes").write_text("* filter=evil diff=evil\n")
    for each in (tree, tree / "nested"):
        (each / "b").write_text("changed")
        for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "diff.external", "core.sshCommand"):
            subprocess.run(["git", "config", key, str(evil)], cwd=each, check=True)
        for hook in ("post-index-change", "pre-commit", "reference-transaction", "post-checkout"):
            (each / ".git/hooks" / hook).write_text(evil.read_text())
            (each / ".git/hooks" / hook).chmod(0o755)
    own = {path: path.read_bytes() for path in (tree / ".git").rglob("*") if path.is_file()}
    spoil = (
        f"for each in ../state/hermes_exec/kept/git/*; do git config -f $each/config core.fsmonitor {evil}; "
        f"mkdir $each/common; cp $each/config $each/common; echo common > $each/commondir; done"
    )

    async def whole() -> None:
        async with talking(log, tree, [ask(run("echo new > a.f"), run(spoil)), "Done."]) as conversation:
            await conversation.ask("change")
            await conversation.rollback(1)

    asyncio.run(whole())
    assert (tree / "a.f").read_text() == "old"
    assert not (tmp_path / "ran").exists()
    assert {path: path.read_bytes() for path in (tree / ".git").rglob("*") if path.is_file()} == own


@pytest.mark.parametrize("seed", range(4))
def test_random_turns_are_rolled_back_to_each_of_them(tree: Path, log: EventLog, seed: int) -> None:
    rng = random.Random(seed)
    names = [*ODD[:6], "d/x", "d/y", "e"]

    def edit() -> tuple[str, dict[str, Any]]:
        name = rng.choice(names)
        quoted = "'" + name.replace("'", "'\\''") + "'"
        match rng.randrange(5):
            case 0:
                return run(f"rm -rf -- {quoted}")
            case 1:
                return run(f"mkdir -p d; head -c {rng.randrange(9000)} /dev/urandom > ./{quoted}")
            case 2:
                return run(f"mkdir -p d; [ ! -e ./{quoted} ] || chmod {rng.choice(['600', '755', '640'])} ./{quoted}")
            case _:
                return write(name, "".join(rng.choice("ab\r\n\tß") for _ in range(rng.randrange(50))))

    turns = 5
    replies: list[ScriptEntry] = []
    for _ in range(turns):
        replies += [ask(*(edit() for _ in range(rng.randrange(1, 6)))), "Done."]
    states: list[dict[str, tuple[str, object]]] = []

    async def whole() -> None:
        async with talking(log, tree, replies) as conversation:
            for number in range(turns):
                states.append(_contents(look(tree)))
                await conversation.ask(f"turn {number}")
            for number in rng.sample(range(turns), turns):
                await conversation.rollback(number + 1)
                assert _contents(look(tree)) == states[number]

    asyncio.run(whole())


def _contents(state: dict[str, tuple[str, object]]) -> dict[str, tuple[str, object]]:
    """A state without the modes: git records of them whether a file can be executed."""
    return {name: ("", content) for name, (_, content) in state.items()}


def test_a_killed_restore_leaves_each_file_old_or_new_and_can_be_repeated(work: Path, log: EventLog) -> None:
    names = [f"f{number}" for number in range(40)]
    for each in names:
        (work / each).write_bytes(each.encode() * 20_000)
    before = look(work)

    async def whole() -> str:
        async with talking(log, work, [ask(*(write(name, "new") for name in names)), "Done."]) as conversation:
            await conversation.ask("change")
            after = look(work)
            rolling = asyncio.create_task(conversation.rollback(1))
            while look(work) == after and not rolling.done():
                await asyncio.sleep(0.001)
            rolling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await rolling
            now = look(work)
            assert {name: now.get(name) for name in names} == {
                name: now[name] if now[name] in (before[name], after[name]) else None for name in names
            }
            assert any(now[name] == after[name] for name in names), "the rollback was too fast to be cut"
            return conversation.id

    async def again(id: str) -> None:
        async with talking(log, work, [], resume=id) as conversation:
            await conversation.rollback(1)

    id = asyncio.run(whole())
    asyncio.run(again(id))
    assert look(work) == before


def test_a_delegated_task_counts_to_the_turn(work: Path, log: EventLog) -> None:
    (work / "a").write_text("old")

    async def whole() -> None:
        async with talking(log, work, ["Done.", "Done."]) as conversation:
            await conversation.ask("x")
            context = conversation._context.fork()  # pyright: ignore[reportPrivateUsage]  as `Delegator` makes it
            await perform(create_tools(context), _call(*write("a", "new")), context)
            await context.close()
            await conversation.ask("y")
            await conversation.rollback(1)

    asyncio.run(whole())
    assert (work / "a").read_text() == "old"


def _call(name: str, arguments: dict[str, Any]) -> Any:
    from hermes_exec_agent.models.messages import ToolCall

    return ToolCall("1", name, json.dumps(arguments))


def test_old_contents_are_removed_and_the_oldest_until_the_rest_fits(tmp_path: Path) -> None:
    kept = tmp_path / "hermes_exec/kept"
    for folder in ("blobs", "git/old", "git/new"):
        (kept / folder).mkdir(parents=True)
    now = time.time()
    for age, name in ((20, "blobs/ancient"), (3, "blobs/old"), (1, "blobs/new"), (20, "git/old"), (1, "git/new")):
        path = kept / name
        content = path / "objects" if path.is_dir() else path
        content.write_bytes(random.Random(name).randbytes(400_000))
        os.utime(path, (now - age * 86_400, now - age * 86_400))

    def prune(days: int, most: int) -> set[str]:
        argv = ["sh", "-c", file_scripts.PRUNE, "sh", str(days), str(most)]
        subprocess.run(argv, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)}, check=True)
        return {str(path.relative_to(kept)) for part in ("blobs", "git") for path in (kept / part).iterdir()}

    assert prune(14, 1 << 30) == {"blobs/old", "blobs/new", "git/new"}
    assert prune(14, 1_000_000) == {"blobs/new", "git/new"}
    assert prune(14, 100_000) == set()


def test_a_snapshot_that_takes_too_long_is_listed_as_not_covered(
    tree: Path, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_exec_agent.tools.file_checkpoints.SNAPSHOT_S", 0.01)

    async def whole() -> list[str]:
        async with talking(log, tree, [ask(run("echo x > y")), "Done."]) as conversation:
            await conversation.ask("change")
            (step,) = await conversation.list_steps()
            return step.list_uncovered()

    (line,) = asyncio.run(whole())
    assert line.endswith("a snapshot takes more than 0.01 s")


def test_a_change_in_the_second_of_a_snapshot_is_seen(tree: Path, log: EventLog) -> None:
    async def whole() -> None:
        async with talking(log, tree, [ask(run("echo 1 > n")), "Done."]) as first:
            await first.ask("one")
        with (tree / "n").open("r+") as file:  # in place, with the same size
            file.write("2")
        await asyncio.sleep(2.1)  # git compares whole seconds
        async with talking(log, tree, [ask(run("echo 3 > n")), "Done."]) as second:
            await second.ask("two")
            await second.rollback(1)
        assert (tree / "n").read_text() == "2\n"

    asyncio.run(whole())
