"""Files: read and written whole on every target; trees, links and ranges where there is a guest."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import TransferError
from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.place import link

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal

NAMES = ["plain", "with space", "quo'te", 'dou"ble', "$dollar", "-dash", "new\nline", "ünï", "*", "~tilde"]


def make_tree(root: Path) -> None:
    """Create a small tree with the special cases of real trees."""
    (root / "sub" / "empty").mkdir(parents=True)
    for name in NAMES:
        (root / "sub" / name).write_bytes(name.encode() * 100)
    (root / "nothing").write_bytes(b"")
    (root / "program").write_bytes(b"#!/bin/sh\n")
    (root / "program").chmod(0o755)
    (root / "link").symlink_to("sub/plain")


def describe_tree(root: Path) -> dict[str, object]:
    """Return the content of a tree, for comparison."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))  # noqa: PTH115  text
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


class FilesSuite(Behaviours, exercises="target"):
    """Bytes are transferred to and from the target unchanged."""

    @pytest.mark.parametrize("name", NAMES)
    async def test_a_file_of_any_name_holds_what_was_written(self, terminal: Terminal, folder: str, name: str) -> None:
        await terminal.write(f"{folder}/{name}", b"content \0\xff\n")
        assert await terminal.read(f"{folder}/{name}") == b"content \0\xff\n"
        assert (await terminal.run(["cat", f"{folder}/{name}"])).stdout == b"content \0\xff\n"

    @exercises("channel")
    async def test_a_large_file_arrives_whole(self, terminal: Terminal, folder: str) -> None:
        data = os.urandom(8_000_000)
        await terminal.write(f"{folder}/large", data)
        there = await terminal.run(["sha256sum", f"{folder}/large"])
        assert there.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
        assert await terminal.read(f"{folder}/large") == data

    async def test_an_empty_file_is_a_file(self, terminal: Terminal, folder: str) -> None:
        await terminal.write(f"{folder}/empty", b"")
        assert await terminal.read(f"{folder}/empty") == b""

    async def test_a_missing_file_is_an_error_with_its_number(self, terminal: Terminal, folder: str) -> None:
        with pytest.raises(TransferError) as caught:
            await terminal.read(f"{folder}/missing")
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.errno == 2

    async def test_writing_into_a_missing_folder_is_an_error(self, terminal: Terminal, folder: str) -> None:
        with pytest.raises(TransferError):
            await terminal.write(f"{folder}/missing/file", b"x")

    async def test_a_file_is_replaced_at_once(self, terminal: Terminal, folder: str) -> None:
        one, two = b"1" * 300_000, b"2" * 300_000
        await terminal.write(f"{folder}/file", one)

        async def look() -> None:
            for _ in range(10):
                assert await terminal.read(f"{folder}/file") in {one, two}

        async def change() -> None:
            for turn in range(10):
                await terminal.write(f"{folder}/file", two if turn % 2 else one)

        await asyncio.gather(look(), change())

    @needs("file_transfer")
    async def test_a_part_of_a_file_can_be_read(self, terminal: Terminal, folder: str) -> None:
        await terminal.write(f"{folder}/file", b"0123456789")
        assert await terminal.files.read(f"{folder}/file", 3, 4) == b"3456"

    @needs("file_transfer")
    async def test_a_tree_comes_back_as_it_went(self, terminal: Terminal, folder: str, tmp_path: Path) -> None:
        make_tree(tmp_path / "tree")
        await terminal.upload(tmp_path / "tree", f"{folder}/there")
        await terminal.download(f"{folder}/there", tmp_path / "back")
        assert describe_tree(tmp_path / "back") == describe_tree(tmp_path / "tree")

    @needs("file_transfer")
    async def test_sync_moves_only_what_differs(self, terminal: Terminal, folder: str, tmp_path: Path) -> None:
        make_tree(tmp_path / "tree")
        await terminal.sync(tmp_path / "tree", f"{folder}/there")
        (tmp_path / "tree" / "sub" / "plain").write_bytes(b"changed, and of another length")
        report = await terminal.sync(tmp_path / "tree", f"{folder}/there")
        assert (report.copied, report.deleted) == (1, 0)
        assert await terminal.read(f"{folder}/there/sub/plain") == b"changed, and of another length"

    @needs("file_transfer")
    async def test_sync_deletes_only_when_asked(self, terminal: Terminal, folder: str, tmp_path: Path) -> None:
        make_tree(tmp_path / "tree")
        await terminal.sync(tmp_path / "tree", f"{folder}/there")
        (tmp_path / "tree" / "nothing").unlink()
        await terminal.sync(tmp_path / "tree", f"{folder}/there")
        assert await terminal.files.exists(f"{folder}/there/nothing")
        await terminal.sync(tmp_path / "tree", f"{folder}/there", delete=True)
        assert not await terminal.files.exists(f"{folder}/there/nothing")

    @needs("file_transfer", "reconnect")
    @exercises("channel")
    async def test_an_upload_survives_a_cut(self, terminal: Terminal, folder: str, tmp_path: Path) -> None:
        data = os.urandom(20_000_000)
        (tmp_path / "large").write_bytes(data)
        sending = asyncio.ensure_future(terminal.upload(tmp_path / "large", f"{folder}/large"))
        for _ in range(3):
            await asyncio.sleep(0.02)
            link(terminal).break_connection()
        await sending
        there = await terminal.run(["sha256sum", f"{folder}/large"])
        assert there.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()

    @needs("file_transfer")
    async def test_folders_are_listed_moved_and_removed(self, terminal: Terminal, folder: str) -> None:
        files = terminal.files
        await files.mkdir(f"{folder}/a/b", parents=True)
        await files.write(f"{folder}/a/b/file", b"x")
        assert [info.path for info in await files.list(f"{folder}/a")] == [f"{folder}/a/b"]
        await files.move(f"{folder}/a", f"{folder}/c")
        assert (await files.stat(f"{folder}/c/b/file")).size == 1
        assert await files.glob(f"{folder}/**/f*") == [f"{folder}/c/b/file"]
        await files.remove(f"{folder}/c", recursive=True)
        assert not await files.exists(f"{folder}/c")

    @needs("file_transfer")
    async def test_removing_a_link_leaves_what_it_leads_to(self, terminal: Terminal, folder: str) -> None:
        files = terminal.files
        await files.mkdir(f"{folder}/kept")
        await files.write(f"{folder}/kept/file", b"x")
        await files.symlink(f"{folder}/kept", f"{folder}/link")
        await files.remove(f"{folder}/link", recursive=True)
        assert await files.exists(f"{folder}/kept/file")
