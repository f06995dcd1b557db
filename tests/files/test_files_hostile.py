"""A place that lies: whatever it sends, nothing is written outside of the folder it was asked for."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import marshal
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec.errors import ProtocolError, TransferError
from hermes_exec.files.requests import FileRequests
from hermes_exec.guest.core import wire
from hermes_exec.guest.files import tree_scan, tree_stream
from hermes_exec.guest.files.ignore_patterns import Ignore
from hermes_exec.guest.files.safe_paths import InvalidTreeData, leads_out
from hermes_exec.guest.files.tree_receiver import TreeReceiver
from hermes_exec.guest.files.tree_stream import FILE, FOLDER, LARGE, LEAVE, LINK, META, ROOT, SKIP
from tests.rigs.breadth import examples, thorough

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator

    from tests.files.conftest import Rig

Entry = tuple[int, bytes, bytes]


def batch(*entries: Entry, mode: int = 0o644, mtime: int = 10**18) -> bytes:
    """A batch with an honest hash: kind, name and content of each entry."""
    with_content = {FILE, LINK}
    records = [
        tree_stream.ENTRY.pack(kind, mode, mtime, len(content) if kind in with_content else 0)
        for kind, _, content in entries
    ]
    names = b"\0".join(name for _, name, _ in entries)
    contents = [content for kind, _, content in entries if kind in with_content]
    counts = tree_stream.COUNTS.pack(len(entries), len(names))
    payload = b"".join([counts, *records, names, *contents])
    return block(tree_stream.BATCH, hashlib.sha256(payload).digest() + payload)


def block(kind: int, payload: bytes) -> bytes:
    return tree_stream.HEAD.pack(kind, len(payload)) + payload


def end(files: int, size: int) -> bytes:
    return block(tree_stream.END, tree_stream.TOTALS.pack(files, size))


class Ground:
    """A root to write into, with links in it that lead out, and what must not change around it."""

    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.outside = base / "outside"
        self.outside.mkdir()
        (self.outside / "precious").write_bytes(b"precious")
        (self.outside / "d").mkdir()
        self.root.mkdir()
        (self.root / "out").symlink_to(self.outside)
        (self.root / "file").symlink_to(self.outside / "precious")
        (self.root / "old").write_bytes(b"old")

    def receive(self, *blocks: bytes, verify: bool = True) -> TreeReceiver:
        receiver = TreeReceiver(os.open(self.root, os.O_RDONLY), False, verify, False)
        try:
            for data in blocks:
                receiver.feed(data)
            receiver.finish()
        finally:
            receiver.close()
        return receiver


@contextmanager
def ground() -> Generator[Ground]:
    with tempfile.TemporaryDirectory() as base:
        yield Ground(Path(base))


@pytest.fixture
def land(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.mark.parametrize("name", [b"", b".", b"..", b"/etc/x", b"../outside/x", b"a/b", b"out/x"])
@pytest.mark.parametrize("kind", [FILE, LINK, FOLDER, LARGE, META])
def test_only_plain_names_are_taken(land: Ground, kind: int, name: bytes) -> None:
    with pytest.raises(InvalidTreeData):
        land.receive(batch((kind, name, b"x")))
    assert sorted(os.listdir(land.outside)) == ["d", "precious"]


@pytest.mark.parametrize("second", [FILE, LINK, FOLDER, LARGE, META])
def test_a_name_is_taken_only_once(land: Ground, second: int) -> None:
    with pytest.raises(InvalidTreeData, match="sent twice"):
        land.receive(batch((FILE, b"a", b"1"), (second, b"a", b"2")))


def test_a_link_cannot_be_made_and_then_gone_through(land: Ground) -> None:
    with pytest.raises(InvalidTreeData, match="sent twice"):
        land.receive(batch((LINK, b"l", b"d"), (FOLDER, b"l", b""), (FILE, b"x", b"1")))


@pytest.mark.parametrize("name", [b"out", b"file", b"old"])
def test_what_is_no_folder_is_not_entered(land: Ground, name: bytes) -> None:
    with pytest.raises(OSError, match="Not a directory|Too many levels") as caught:
        land.receive(batch((FOLDER, name, b""), (FILE, b"x", b"1")))
    assert caught.value.filename == name
    assert sorted(os.listdir(land.outside)) == ["d", "precious"]


def test_a_file_takes_the_place_of_a_link_and_leaves_its_target(land: Ground) -> None:
    land.receive(batch((FILE, b"file", b"new"), (FILE, b"out", b"new")), end(2, 6))
    assert not (land.root / "file").is_symlink()
    assert (land.outside / "precious").read_bytes() == b"precious"


def test_mode_and_time_are_not_set_through_a_link(land: Ground) -> None:
    before = (land.outside / "precious").stat()
    with pytest.raises(OSError, match="Too many levels"):
        land.receive(batch((META, b"file", b"")))
    assert (land.outside / "precious").stat() == before


@pytest.mark.parametrize(
    ("target", "depth", "out"),
    [
        (b"a", 0, False),
        (b"./a//b", 0, False),
        (b"..", 0, True),
        (b"..", 1, False),
        (b"../../x", 1, True),
        (b"../../x", 2, False),
        (b"a/..", 3, True),
        (b"/a", 9, True),
        (b"", 9, True),
        (b"..a/b..", 0, False),
    ],
)
def test_a_target_may_lead_out(target: bytes, depth: int, out: bool) -> None:
    assert leads_out(target, depth) is out


def test_two_spellings_of_one_file_are_refused_where_case_does_not_count(
    land: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No such file system is at hand, so that the kernel's answer is: both names are the same file.
    def same(first: os.stat_result, second: os.stat_result) -> bool:
        return True

    monkeypatch.setattr(os.path, "samestat", same)
    (land.root / "NAME").touch()
    with pytest.raises(InvalidTreeData, match="sent twice"):
        land.receive(batch((FILE, b"name", b"1"), (FILE, b"NAME", b"2")))


def test_two_spellings_are_two_files_where_case_counts(land: Ground) -> None:
    entries = [(FILE, name.encode(), name.encode()) for name in ("name", "NAME", "é", "e\u0301", "É")]
    size = sum(len(content) for _, _, content in entries)
    land.receive(batch(*entries), end(5, size))
    assert all((land.root / os.fsdecode(name)).read_bytes() == content for _, name, content in entries)


@pytest.mark.parametrize(
    "blocks",
    [
        [b"\xff" * 40],
        [block(tree_stream.BATCH, b"")],
        [block(tree_stream.BATCH, b"x" * 100)],
        [tree_stream.HEAD.pack(tree_stream.BATCH, 1 << 31)],
        [block(tree_stream.DATA, b"content of nothing")],
        [block(tree_stream.FILE_END, b"\0" * 32)],
        [batch((LEAVE, b"", b""))],
        [batch((FOLDER, b"d", b"")), end(0, 0)],
        [batch((LARGE, b"a", b"")), batch((FILE, b"b", b""))],
        [batch((LARGE, b"a", b""), (FILE, b"b", b""))],
        [batch((LARGE, b"a", b"")), end(0, 0)],
        [batch((LARGE, b"a", b"")), block(tree_stream.DATA, b"1"), block(tree_stream.FILE_END, b"\0" * 32)],
        [batch((ROOT, b"", b""), (ROOT, b"", b""))],
        [batch((99, b"a", b""))],
        [batch((LINK, b"a", b"x\0y"))],
        [batch((FILE, b"a", b"1")), end(1, 2)],
        [end(0, 0), batch((FILE, b"a", b"1"))],
        [end(0, 0), b"more"],
        [batch((FILE, b"a", b"1"))],
        [block(tree_stream.END, b"short")],
        [],
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(land: Ground, blocks: list[bytes]) -> None:
    with pytest.raises(InvalidTreeData):
        land.receive(*blocks)
    assert not list(land.root.rglob(".hx-*"))


def test_content_with_another_hash_never_gets_its_name(land: Ground) -> None:
    good = batch((FILE, b"old", b"new"))
    with pytest.raises(InvalidTreeData, match="hash"):
        land.receive(good[:-1] + b"X", end(1, 3))
    assert (land.root / "old").read_bytes() == b"old"


def seen_outside(land: Ground) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(land.outside.rglob("*"))}


names = st.one_of(
    st.sampled_from([b"..", b".", b"", b"/", b"a", b"A", b"out", b"file", b"d", b"out/d", b"../outside/x"]),
    st.binary(max_size=4),
)
targets = st.sampled_from([b"a", b"..", b"../..", b"out/x", b"a/../..", b"/etc/passwd", b".", b"", b"d/../../outside"])
entries = st.one_of(
    st.tuples(st.sampled_from([FILE, META, SKIP]), names, st.binary(max_size=20)),
    st.tuples(st.sampled_from([FOLDER, LARGE]), names, st.just(b"")),
    st.tuples(st.just(LINK), names, targets),
    st.tuples(st.just(LEAVE), st.just(b""), st.just(b"")),
)
blocks = st.one_of(
    st.lists(entries, min_size=1, max_size=6).map(lambda found: batch(*found)),
    st.binary(max_size=30).map(lambda data: block(tree_stream.DATA, data)),
    st.binary(max_size=30).map(
        lambda data: block(tree_stream.DATA, data) + block(tree_stream.FILE_END, hashlib.sha256(data).digest())
    ),
    st.binary(max_size=30),
)


@settings(max_examples=examples(300), deadline=None)
@given(stream=st.lists(blocks, max_size=6), pieces=st.integers(1, 50))
def test_no_stream_changes_anything_outside_of_the_root(stream: list[bytes], pieces: int) -> None:
    data = b"".join(stream)
    with ground() as land:
        before = seen_outside(land)
        for at in [data[i : i + pieces] for i in range(0, len(data), pieces)]:
            del at
        with suppress(InvalidTreeData, OSError):
            land.receive(*(data[i : i + pieces] for i in range(0, len(data), pieces)))
        assert seen_outside(land) == before
        assert not list(land.root.rglob(".hx-?*"))  # longer than any name in the stream
        for path in land.root.rglob("*"):
            if path.is_symlink() and path.name not in {"out", "file"}:
                inner = os.path.relpath(path.parent, land.root).count("/") + (path.parent != land.root)
                assert not leads_out(os.fsencode(os.readlink(path)), inner)


@settings(max_examples=examples(150), deadline=None)
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.booleans(), pieces=st.integers(1, 3000))
@thorough
def test_a_damaged_stream_is_refused_and_leaves_only_whole_files(at: int, bit: int, cut: bool, pieces: int) -> None:
    with ground() as land:
        source = land.outside / "d"
        contents = {b"one", b"two" * 50, b"L" * (140 << 10)}
        for number, content in enumerate(contents):
            (source / str(number)).write_bytes(content)
        sender = tree_stream.TreeSender(os.open(source, os.O_RDONLY), True)
        data = bytearray(b"".join(sender.walk(Ignore([]))))
        sender.close()
        at %= len(data)
        if cut:
            del data[at:]
        else:
            data[at] ^= 1 << bit
        with pytest.raises((InvalidTreeData, OSError)):
            land.receive(*(bytes(data[i : i + pieces]) for i in range(0, len(data), pieces)))
        written = [path for path in land.root.iterdir() if path.is_file() and path.name not in {"old", "file"}]
        assert {path.read_bytes() for path in written} <= contents


def make_hostile(rig: Rig, source: str) -> None:
    """Teach the guest to lie: ``source`` runs in it, after the part for files."""
    rig.link.load_part("files")
    text = (
        "from .files import operations, transfers, tree_scan, tree_stream, tree_writer\n"
        f"OPERATIONS = transfers.OPERATIONS\n{source}\n"
        "def install(server):\n    pass\n"
    )
    code = marshal.dumps(compile(text, "hostile", "exec"))
    blob = marshal.dumps((importlib.util.MAGIC_NUMBER, (("hostile", code, text.encode()),)), 2)
    rig.link.send(wire.frame(wire.LOAD, 0, 0, b"hostile\0" + blob))


def walk_of(*blocks: bytes) -> str:
    return f"tree_stream.TreeSender.walk = tree_stream.TreeSender.send_plan = lambda self, ignore: {list(blocks)!r}"


@pytest.mark.parametrize(
    "lie",
    [
        walk_of(batch((FILE, b"../evil", b"x")), end(1, 1)),
        walk_of(batch((LINK, b"d", b"..")), batch((FILE, b"d", b"x")), end(2, 1)),
        walk_of(batch((FILE, b"a", b"x"))),
        walk_of(b"\xff" * 999),
        walk_of(batch((FILE, b"a", b"x"))[:-1] + b"y", end(1, 1)),
        walk_of(),
    ],
)
def test_a_download_from_a_liar_is_an_error_and_stays_in_its_folder(rig: Rig, lie: str) -> None:
    make_hostile(rig, lie)
    before = set(os.listdir(rig.base))
    with pytest.raises(TransferError) as caught:
        rig.run(rig.files.download(".", rig.here / "out"))
    assert "on this side" in str(caught.value)
    assert set(os.listdir(rig.base)) == before
    assert os.listdir(rig.here) == ["out"]


def test_a_liar_cannot_make_a_sync_delete_outside(rig: Rig) -> None:
    (rig.base / "precious").touch()
    (rig.here / "extra").touch()
    make_hostile(rig, walk_of(end(0, 0)))
    rig.run(rig.files.sync(rig.here, ".", direction="down", delete=True))
    assert (rig.base / "precious").exists()
    assert not (rig.here / "extra").exists()


def test_what_the_place_could_not_look_into_is_not_taken_for_deleted(rig: Rig) -> None:
    closed = tree_scan.BLOCK.pack(1, 0, 1, 0) + b"d" + tree_scan.RECORD.pack(0, errno.EACCES, 0)
    make_hostile(rig, f"tree_scan.scan = lambda root, ignore: [{closed!r}]")
    (rig.here / "d").mkdir()
    (rig.here / "d/a").touch()
    with pytest.raises(PermissionError, match=r"cannot sync \./d: Permission denied"):
        rig.run(rig.files.sync(rig.here, ".", direction="down", delete=True))
    assert (rig.here / "d/a").exists()


@pytest.mark.parametrize(
    "path", [b"../outside/precious", b"out/precious", b"/etc/x", b"..", b"d/../../outside/precious"]
)
def test_pruning_stays_in_its_folder(land: Ground, path: bytes) -> None:
    (land.root / "d").mkdir()
    root = os.open(land.root, os.O_RDONLY)
    try:
        with pytest.raises((InvalidTreeData, OSError)):
            tree_scan.prune(root, [path])
    finally:
        os.close(root)
    assert (land.outside / "precious").exists()


def test_a_file_with_another_hash_is_not_kept(rig: Rig) -> None:
    (rig.there / "a").write_bytes(b"content")
    (rig.here / "a").write_bytes(b"old")
    make_hostile(rig, "transfers._send_file = lambda task, fd: {'sha256': bytes(32), 'size': 0}")
    with pytest.raises(TransferError, match="hash") as caught:
        rig.run(rig.files.download("a", rig.here / "a"))
    assert caught.value.state == "the destination is as it was"
    assert (rig.here / "a").read_bytes() == b"old"


def test_a_file_that_came_short_is_not_kept_where_no_hash_is_asked_for(rig: Rig) -> None:
    (rig.there / "a").write_bytes(b"content")
    (rig.here / "a").write_bytes(b"old")
    make_hostile(rig, "transfers._send_file = lambda task, fd: {'sha256': b'', 'size': 7}")
    with pytest.raises(TransferError, match="size"):
        rig.run(rig.files.download("a", rig.here / "a", verify=False))
    assert (rig.here / "a").read_bytes() == b"old"


def test_more_than_was_told_is_not_kept_where_no_hash_is_asked_for(rig: Rig) -> None:
    (rig.there / "a").write_bytes(b"old")

    async def send() -> dict[str, Any]:
        arguments: dict[str, Any] = {"mode": 0o644, "mtime": 0, "parents": True, "resume": False, "near": None}
        requests = FileRequests(rig.link, str(rig.there))
        async with requests.stream("put", "a", size=3, verify=False, **arguments) as stream:
            await stream.call.write(b"four")
            stream.call.write_eof()
            return await stream.call.result()

    assert rig.run(send())["message"] == "more data than announced"
    assert (rig.there / "a").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("operation", "lie"),
    [
        ("stat", "{'info': [1, 2]}"),
        ("stat", "{}"),
        ("stat", "{'error': 7}"),
        ("stat", "{'error': 'os', 'errno': 'x', 'message': 'y'}"),
        ("readlink", "{'target': 5}"),
        ("hash", "{'sha256': 'text'}"),
        ("get", "{}"),
        ("scan", "task.put(b'x' * 100) or task.flush() or {}"),
        ("put_tree", "{'files': 1}"),
        ("put_tree", "{'files': 1, 'bytes': 1, 'outside': [1], 'skipped': []}"),
    ],
)
def test_an_answer_that_makes_no_sense_is_a_protocol_error(rig: Rig, operation: str, lie: str) -> None:
    make_hostile(rig, f"OPERATIONS[{operation!r}] = lambda task: {lie}")
    files = rig.files
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "stat": lambda: files.stat("a"),
        "readlink": lambda: files.readlink("a"),
        "hash": lambda: files.hash("a"),
        "get": lambda: files.download("a", rig.here / "out"),
        "scan": lambda: files.sync(rig.here, "."),
        "put_tree": lambda: files.upload(rig.here, "t"),
    }
    with pytest.raises(ProtocolError):
        rig.run(calls[operation]())


def test_what_a_liar_says_is_shown_in_short(rig: Rig) -> None:
    make_hostile(rig, "OPERATIONS['stat'] = lambda task: {'error': 'refused', 'message': 'x' * 10**6}")
    with pytest.raises(TransferError) as caught:
        rig.run(rig.files.stat("a"))
    assert len(str(caught.value)) < 500


def test_a_place_takes_nothing_outside_of_the_folder_either(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:

    def lie(sender: tree_stream.TreeSender, ignore: Ignore) -> Iterator[bytes]:
        yield batch((FILE, b"../evil", b"x"))
        yield end(1, 1)

    monkeypatch.setattr(tree_stream.TreeSender, "walk", lie)
    (rig.here / "a").touch()
    with pytest.raises(TransferError, match="not a plain name"):
        rig.run(rig.files.upload(rig.here, "t"))
    assert sorted(os.listdir(rig.there)) == ["t"]
