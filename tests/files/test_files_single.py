"""Reading, writing and changing single files and folders in the place."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import TransferError, UsageError
from hermes_exec.files import Kind

if TYPE_CHECKING:
    from tests.files.conftest import Rig

DATA = bytes(range(256)) * 4096


def test_read_gives_the_bytes_that_are_there(each_rig: Rig) -> None:
    (each_rig.there / "a").write_bytes(DATA)
    assert each_rig.run(each_rig.files.read("a")) == DATA


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(10, 5, DATA[10:15]), (0, 0, b""), (len(DATA) - 2, None, DATA[-2:]), (len(DATA) + 9, 5, b"")],
)
def test_read_gives_a_range(rig: Rig, offset: int, length: int | None, expected: bytes) -> None:
    (rig.there / "a").write_bytes(DATA)
    assert rig.run(rig.files.read("a", offset, length)) == expected


def test_read_takes_files_that_say_they_are_empty(rig: Rig) -> None:
    assert rig.run(rig.files.read("/proc/self/status")).startswith(b"Name:")


def test_read_of_a_missing_file_is_a_file_not_found_error(each_rig: Rig) -> None:
    with pytest.raises(FileNotFoundError, match=r"cannot read .*nope: No such file") as caught:
        each_rig.run(each_rig.files.read("nope"))
    error = caught.value
    assert isinstance(error, TransferError)
    assert (error.errno, error.filename) == (errno.ENOENT, str(each_rig.there / "nope"))
    assert error.state == "nothing was changed"


def test_read_of_a_folder_is_an_is_a_directory_error(rig: Rig) -> None:
    with pytest.raises(IsADirectoryError):
        rig.run(rig.files.read("."))


@pytest.mark.parametrize("data", [b"", b"x", DATA * 9], ids=["nothing", "little", "much"])
def test_write_makes_a_file_with_the_data(each_rig: Rig, data: bytes) -> None:
    each_rig.run(each_rig.files.write("a", data))
    assert (each_rig.there / "a").read_bytes() == data


def test_write_keeps_the_mode_of_the_file_it_replaces(each_rig: Rig) -> None:
    path = each_rig.there / "a"
    path.write_bytes(b"old")
    path.chmod(0o4751)
    each_rig.run(each_rig.files.write("a", b"new"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o4751


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_write_keeps_the_owner_of_the_file_it_replaces(rig: Rig) -> None:
    path = rig.there / "a"
    path.write_bytes(b"old")
    os.chown(path, 1234, 2345)
    rig.run(rig.files.write("a", b"new"))
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_write_gives_the_mode_that_is_asked_for(rig: Rig) -> None:
    rig.run(rig.files.write("a", b"new", mode=0o640))
    assert stat.S_IMODE((rig.there / "a").stat().st_mode) == 0o640


def test_write_goes_through_a_link(rig: Rig) -> None:
    (rig.there / "real").write_bytes(b"old")
    (rig.there / "link").symlink_to("real")
    rig.run(rig.files.write("link", b"new"))
    assert (rig.there / "link").is_symlink()
    assert (rig.there / "real").read_bytes() == b"new"


def test_write_shows_readers_the_old_or_the_new_content_only(rig: Rig) -> None:
    path = rig.there / "a"
    old, new = b"o" * 3_000_000, b"n" * 3_000_000
    path.write_bytes(old)
    seen: set[bytes] = set()

    async def scenario() -> None:
        async def write() -> None:
            for number in range(6):
                await rig.files.write("a", (new, old)[number % 2])

        writing = asyncio.create_task(write())
        while not writing.done():
            seen.add(await asyncio.to_thread(path.read_bytes))
        await writing

    rig.run(scenario())
    assert seen <= {old, new}


def test_write_makes_missing_folders_only_when_asked(rig: Rig) -> None:
    with pytest.raises(FileNotFoundError):
        rig.run(rig.files.write("x/y/a", b"1"))
    rig.run(rig.files.write("x/y/a", b"1", parents=True))
    assert (rig.there / "x/y/a").read_bytes() == b"1"


def test_write_that_is_durable_writes_the_same(rig: Rig) -> None:
    rig.run(rig.files.write("a", b"1", durable=True))
    assert (rig.there / "a").read_bytes() == b"1"


def test_write_over_a_folder_is_refused(rig: Rig) -> None:
    (rig.there / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        rig.run(rig.files.write("d", b"1"))


def test_write_to_what_is_no_file_is_refused(rig: Rig) -> None:
    with pytest.raises(OSError, match="not a regular file") as caught:
        rig.run(rig.files.write("/dev/null", b"new"))
    assert caught.value.errno == errno.EINVAL


def test_append_adds_to_the_same_file(each_rig: Rig) -> None:
    path = each_rig.there / "a"
    path.write_bytes(b"one")
    inode = path.stat().st_ino
    each_rig.run(each_rig.files.write("a", b"two", append=True))
    assert path.read_bytes() == b"onetwo"
    assert path.stat().st_ino == inode


def test_names_that_are_not_utf_8_keep_their_bytes(each_rig: Rig) -> None:
    name = os.fsdecode(b"caf\xe9-\xff\n")
    each_rig.run(each_rig.files.write(name, b"1"))
    assert os.listdir(os.fsencode(each_rig.there)) == [b"caf\xe9-\xff\n"]
    assert [info.path for info in each_rig.run(each_rig.files.list())] == [name]
    assert each_rig.run(each_rig.files.read(os.fsencode(name))) == b"1"
    assert each_rig.run(each_rig.files.glob("caf*")) == [name]


def test_stat_tells_what_a_file_is(each_rig: Rig) -> None:
    path = each_rig.there / "a"
    path.write_bytes(b"12345")
    path.chmod(0o604)
    os.utime(path, ns=(1, 1_234_567_890_123_456_789))
    info = each_rig.run(each_rig.files.stat("a"))
    assert (info.path, info.kind, info.size, info.mode) == ("a", Kind.FILE, 5, 0o604)
    assert (info.mtime_ns, info.uid, info.gid) == (1_234_567_890_123_456_789, os.getuid(), os.getgid())
    assert info.is_file
    assert not info.is_folder


def test_stat_follows_a_link_unless_told_not_to(each_rig: Rig) -> None:
    (each_rig.there / "d").mkdir()
    (each_rig.there / "link").symlink_to("d")
    assert each_rig.run(each_rig.files.stat("link")).kind is Kind.FOLDER
    info = each_rig.run(each_rig.files.stat("link", follow=False))
    assert (info.kind, info.target) == (Kind.LINK, "d")


def test_exists_is_about_what_a_link_leads_to(rig: Rig) -> None:
    (rig.there / "a").touch()
    (rig.there / "dangling").symlink_to("nope")
    found = [rig.run(rig.files.exists(name)) for name in ("a", "dangling", "nope", "a/below")]
    assert found == [True, False, False, False]


def test_list_is_sorted_and_follows_no_link(each_rig: Rig) -> None:
    (each_rig.there / "d").mkdir()
    (each_rig.there / "d/b").write_bytes(b"12")
    (each_rig.there / "d/a").symlink_to("/nowhere")
    os.mkfifo(each_rig.there / "d/c")
    found = each_rig.run(each_rig.files.list("d"))
    assert [(info.path, info.kind) for info in found] == [
        ("d/a", Kind.LINK),
        ("d/b", Kind.FILE),
        ("d/c", Kind.OTHER),
    ]
    assert (found[0].target, found[1].size) == ("/nowhere", 2)


def test_list_of_many_names_is_whole(rig: Rig) -> None:
    names = [f"{number:05}" for number in range(20_000)]
    for name in names:
        (rig.there / name).touch()
    assert [info.path for info in rig.run(rig.files.list())] == names


def test_mkdir_makes_folders_above_only_when_asked(each_rig: Rig) -> None:
    with pytest.raises(FileNotFoundError):
        each_rig.run(each_rig.files.mkdir("x/y"))
    each_rig.run(each_rig.files.mkdir("x/y", parents=True, mode=0o750))
    each_rig.run(each_rig.files.mkdir("x/y", parents=True))
    assert stat.S_IMODE((each_rig.there / "x/y").stat().st_mode) == 0o750
    with pytest.raises(FileExistsError):
        each_rig.run(each_rig.files.mkdir("x/y"))


def test_remove_takes_files_links_and_empty_folders(each_rig: Rig) -> None:
    (each_rig.there / "kept").mkdir()
    (each_rig.there / "kept/a").touch()
    (each_rig.there / "link").symlink_to("kept")
    (each_rig.there / "empty").mkdir()
    for name in ("link", "empty/", "kept/a"):
        each_rig.run(each_rig.files.remove(name))
    assert os.listdir(each_rig.there) == ["kept"]


def test_remove_of_a_full_folder_says_recursive(rig: Rig) -> None:
    (rig.there / "d").mkdir()
    (rig.there / "d/a").touch()
    with pytest.raises(OSError, match="recursive=True") as caught:
        rig.run(rig.files.remove(str(rig.there / "d")))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTEMPTY, str(rig.there / "d"))
    assert (rig.there / "d/a").exists()


def test_remove_of_a_whole_folder_follows_no_link(each_rig: Rig) -> None:
    (each_rig.there / "other").mkdir()
    (each_rig.there / "other/precious").touch()
    for number in range(3):
        deep = each_rig.there / f"d/{number}/deep"
        deep.mkdir(parents=True)
        (deep / "file").touch()
        (deep / "link").symlink_to(each_rig.there / "other")
    each_rig.run(each_rig.files.remove("d", recursive=True))
    assert not (each_rig.there / "d").exists()
    assert (each_rig.there / "other/precious").exists()


@pytest.mark.parametrize("path", ["/", "//", "/.", "/tmp/..", ".", ".."])
def test_remove_refuses_the_root_and_dots(rig: Rig, path: str) -> None:
    with pytest.raises(OSError, match="never removed"):
        rig.run(rig.files.remove(path, recursive=True))


def test_remove_of_a_missing_file_can_be_allowed(rig: Rig) -> None:
    with pytest.raises(FileNotFoundError):
        rig.run(rig.files.remove("nope"))
    rig.run(rig.files.remove("nope", missing_ok=True))


def test_move_replaces_a_file(each_rig: Rig) -> None:
    (each_rig.there / "a").write_bytes(b"new")
    (each_rig.there / "b").write_bytes(b"old")
    each_rig.run(each_rig.files.move("a", "b"))
    assert (each_rig.there / "b").read_bytes() == b"new"
    assert not (each_rig.there / "a").exists()


@pytest.mark.skipif(
    not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat("/var/tmp").st_dev,
    reason="needs two file systems",
)
def test_move_goes_into_another_file_system(each_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Path(f"/dev/shm/hermes-exec-test-{os.getpid()}")
    other.mkdir()
    try:
        source = each_rig.there / "d"
        (source / "inner").mkdir(parents=True)
        (source / "inner/a").write_bytes(DATA)
        (source / "link").symlink_to("inner")
        before = each_rig.tree(source)
        each_rig.run(each_rig.files.move("d", str(other / "e")))
        assert each_rig.tree(other / "e") == before
        assert not source.exists()
        each_rig.run(each_rig.files.move(str(other / "e/inner/a"), "a"))
        assert (each_rig.there / "a").read_bytes() == DATA
        assert not (other / "e/inner/a").exists()
    finally:
        each_rig.run(each_rig.files.remove(str(other), recursive=True))


def test_chmod_follows_a_link(rig: Rig) -> None:
    (rig.there / "a").touch()
    (rig.there / "link").symlink_to("a")
    rig.run(rig.files.chmod("link", 0o2705))
    assert stat.S_IMODE((rig.there / "a").stat().st_mode) == 0o2705


def test_symlink_and_readlink_keep_the_target(each_rig: Rig) -> None:
    each_rig.run(each_rig.files.symlink("../no/where", "link"))
    assert each_rig.run(each_rig.files.readlink("link")) == "../no/where"
    with pytest.raises(FileExistsError):
        each_rig.run(each_rig.files.symlink("x", "link"))
    each_rig.run(each_rig.files.symlink("x", "link", replace=True))
    assert os.readlink(each_rig.there / "link") == "x"


def test_hash_is_the_sha_256(each_rig: Rig) -> None:
    (each_rig.there / "a").write_bytes(DATA)
    assert each_rig.run(each_rig.files.hash("a")) == hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/**", ["src", "src/b.py", "src/deep", "src/deep/c.py", "src/deep/d.txt"]),
        ("src/*/[cd].*", ["src/deep/c.py", "src/deep/d.txt"]),
        ("**/d?ep/*.txt", ["src/deep/d.txt"]),
        (".*", [".hidden"]),
        ("src", ["src"]),
        ("nope/*", []),
        ("link/*", ["link/c.py", "link/d.txt"]),
    ],
)
def test_glob_finds_what_a_shell_finds(each_rig: Rig, pattern: str, expected: list[str]) -> None:
    (each_rig.there / "src/deep").mkdir(parents=True)
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/d.txt", ".hidden"):
        (each_rig.there / name).touch()
    (each_rig.there / "link").symlink_to("src/deep")
    assert each_rig.run(each_rig.files.glob(pattern)) == expected


def test_glob_of_an_absolute_pattern_gives_absolute_paths(rig: Rig) -> None:
    (rig.there / "a.py").touch()
    assert rig.run(rig.files.glob(f"{rig.there}/*.py")) == [str(rig.there / "a.py")]


def test_glob_of_too_many_paths_is_an_error(rig: Rig) -> None:
    for number in range(5):
        (rig.there / str(number)).touch()
    with pytest.raises(TransferError, match="more than 4 paths"):
        rig.run(rig.files.glob("*", limit=4))
    assert len(rig.run(rig.files.glob("*", limit=5))) == 5


def test_a_relative_path_is_seen_from_the_default_folder(rig: Rig) -> None:
    from hermes_exec.files import Files

    (rig.there / "d").mkdir()
    rig.run(Files(rig.link, "d").write("a", b"1"))
    assert (rig.there / "d/a").read_bytes() == b"1"


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_path_is_a_usage_error(rig: Rig, path: str) -> None:
    with pytest.raises(UsageError, match="is not a path"):
        rig.run(rig.files.read(path))


@pytest.mark.parametrize("mode", [-1, 0o10000, 1 << 70, "755"])
def test_what_is_no_mode_is_a_usage_error_and_changes_nothing(rig: Rig, mode: int) -> None:
    (rig.there / "a").touch(0o640)
    for change in (rig.files.chmod("a", mode), rig.files.write("a", b"1", mode=mode), rig.files.mkdir("d", mode=mode)):
        with pytest.raises(UsageError, match="is not a file's mode"):
            rig.run(change)
    assert (rig.there / "a").stat().st_mode & 0o7777 == 0o640
    assert os.listdir(rig.there) == ["a"]


@pytest.mark.parametrize(("offset", "length"), [(1 << 63, None), (0, 1 << 70), (-1, None), (0, -1)])
def test_what_is_no_range_is_a_usage_error(rig: Rig, offset: int, length: int | None) -> None:
    with pytest.raises(UsageError, match="is not a count"):
        rig.run(rig.files.read("/dev/null", offset, length))


def test_a_hundred_operations_at_once_all_answer(rig: Rig) -> None:
    async def scenario() -> list[bytes]:
        await asyncio.gather(*(rig.files.write(f"f{number}", b"%d" % number) for number in range(100)))
        return await asyncio.gather(*(rig.files.read(f"f{number}") for number in range(100)))

    assert rig.run(scenario()) == [b"%d" % number for number in range(100)]


def test_an_operation_that_blocks_stops_no_other(rig: Rig) -> None:
    os.mkfifo(rig.there / "pipe")
    (rig.there / "a").write_bytes(b"1")

    async def scenario() -> None:
        blocked = asyncio.create_task(rig.files.read("pipe"))
        assert await rig.files.read("a") == b"1"
        assert not blocked.done()
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        assert await rig.files.read("a") == b"1"

    rig.run(scenario())
