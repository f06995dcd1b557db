"""A recorded terminal answers as the real one did, without the target, and refuses what was not recorded."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
import hermes_exec.sync
from hermes_exec.errors import CommandFailed, TransferError, UsageError
from hermes_exec.recording import NotRecorded, RecordedTerminal, record, record_async, replay, replay_async

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "a-secret-value"


def use(terminal: RecordedTerminal, folder: Path) -> list[object]:
    """Use everything that can be recorded; the values are what came back."""
    seen: list[object] = [terminal.target, terminal.kind]
    seen += [terminal.run("cd /usr; x=3; echo $x").stdout, terminal.run("pwd").stdout]
    seen.append(terminal.run(["cat"], stdin=b"\xff\x00", env={"TOKEN": SECRET}).stdout)
    seen.append(terminal.run("echo a; echo b >&2", merge_stderr=True).stdout)
    cut = terminal.run("seq 9", max_output=4)
    seen += [cut.stdout, cut.truncated["stdout"].omitted]
    seen += [
        (end.exit_code, end.signal) for end in (terminal.run("(exit 3)"), terminal.run(["sh", "-c", "kill -9 $$"]))
    ]
    seen.append(terminal.run("sleep 9", timeout=0.1).timed_out)
    with pytest.raises(CommandFailed, match="nope"):
        terminal.run("echo nope >&2; false", check=True)
    with terminal.session() as one, terminal.session() as two:
        one.run("y=1")
        seen += [one.run("echo $y").stdout, two.run("echo $y").stdout]
    terminal.write(folder / "file", b"\xfe bytes")
    seen.append(terminal.read(folder / "file"))
    with pytest.raises(TransferError) as caught:
        terminal.read("/none/x")
    seen += [str(caught.value), caught.value.errno]
    with pytest.raises(UsageError) as refused:
        terminal.run("true", cwd="/none")
    return [*seen, str(refused.value)]


def test_a_replay_answers_as_the_target_did(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with hermes_exec.sync.open("local") as terminal, record(terminal, file) as recorded:
        before = use(recorded, tmp_path)
    (tmp_path / "file").unlink()
    with replay(file) as replayed:
        assert use(replayed, tmp_path) == before
    assert not (tmp_path / "file").exists()
    assert SECRET not in file.read_text()


def test_what_was_not_recorded_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with hermes_exec.sync.open("local") as terminal, record(terminal, file) as recorded:
        recorded.run("true", env={"A": "1"})
    others: list[dict[str, Any]] = [
        {},
        {"env": {"A": "2"}},
        {"env": {"A": "1"}, "stdin": "x"},
        {"env": {"A": "1"}, "cwd": "/"},
    ]
    with replay(file) as replayed:
        for options in others:
            with pytest.raises(NotRecorded, match=r'run "true".* was not recorded in .*run\.json'):
                replayed.run("true", **options)
        with pytest.raises(NotRecorded, match="stream of a terminal cannot be recorded"):
            replayed.stream("true")
        assert replayed.run("true", env={"A": "1"}, timeout=5, check=True).ok
        with pytest.raises(NotRecorded, match="was recorded 1 times, and this is one more"):
            replayed.run("true", env={"A": "1"})


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "target": "", "kind": "", "calls": [1]}']
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="is not a recording"), replay(file):
        pass
    with pytest.raises(UsageError, match="there is no recording"), replay(tmp_path / "none"):
        pass


def test_a_recording_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    wrong: Any = 3
    with hermes_exec.sync.open("local") as terminal:
        for path, said in [(tmp_path / "none" / "run", "existing folder"), (tmp_path, "path: "), (wrong, "an int")]:
            with pytest.raises(UsageError, match=said), record(terminal, path):
                pytest.fail("it began")
    with pytest.raises(UsageError, match="terminal: an int"), record(wrong, tmp_path / "run.json"):
        pytest.fail("it began")
    with pytest.raises(UsageError, match="path: an int"), replay(wrong):
        pytest.fail("it began")


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    file = tmp_path / "run.json"

    async def work() -> None:
        async with hermes_exec.open("local") as terminal, record_async(terminal, file) as recorded:
            await recorded.run("x=5")
            before = (await recorded.run("echo $x")).stdout
            async with recorded.session() as session:
                await session.run("true", check=True)
            await recorded.write(tmp_path / "file", b"text")
            assert await recorded.read(tmp_path / "file") == b"text"
        async with replay_async(file) as replayed:
            await replayed.run("x=5")
            assert (await replayed.run("echo $x")).stdout == before == b"5\n"
            async with replayed.session() as session:
                assert (await session.run("true", check=True)).ok
            await replayed.write(tmp_path / "file", b"text")
            assert await replayed.read(tmp_path / "file") == b"text"
            with pytest.raises(NotRecorded):
                await replayed.run("other")

    asyncio.run(work())
    assert json.loads(file.read_text())["target"] == "local"
