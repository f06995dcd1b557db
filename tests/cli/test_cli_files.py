"""``cp``, ``sync`` and ``forward``."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "src"
    (root / "inner").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "inner" / "data").write_bytes(bytes(range(256)))
    (root / "script").write_text("#!/bin/sh\n")
    (root / "script").chmod(0o750)
    (root / "link").symlink_to("inner/data")
    return root


def looks(root: Path) -> dict[str, object]:
    """Everything below ``root``."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
    return found


@pytest.mark.parametrize("way", ["up", "down", "across"])
def test_cp_copies_a_tree(cli: Cli, tree: Path, tmp_path: Path, way: str) -> None:
    to = tmp_path / "to"
    source, destination = (
        (f"local:{tree}" if way != "up" else str(tree)),
        (f"local:{to}" if way != "down" else str(to)),
    )
    done = cli("cp", source, destination)
    assert done.returncode == 0, done.stderr
    assert looks(to) == looks(tree)


def test_cp_goes_into_a_folder_that_exists(cli: Cli, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    cli("cp", str(tree), str(tree / "script"), f"local:{tmp_path}/to")
    assert looks(tmp_path / "to" / "src") == looks(tree)
    assert (tmp_path / "to" / "script").exists()


def test_cp_of_what_a_folder_holds_goes_there_itself(cli: Cli, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    cli("cp", f"local:{tree}/.", str(tmp_path / "to"))
    assert looks(tmp_path / "to") == looks(tree)


def test_cp_leaves_out_what_is_ignored(cli: Cli, tree: Path, tmp_path: Path) -> None:
    cli("cp", "--ignore", "inner/", "--ignore", "link", str(tree), f"local:{tmp_path}/to")
    assert set(looks(tmp_path / "to")) == {"empty", "script"}


def test_cp_begins_at_the_home_folder(cli: Cli, tree: Path) -> None:
    cli("cp", str(tree / "script"), "local:~/there")
    assert (Path(cli.env["HOME"]) / "there").read_text() == "#!/bin/sh\n"


def test_cp_tells_as_json(cli: Cli, tree: Path, tmp_path: Path) -> None:
    (told,) = json.loads(cli("cp", "--json", str(tree / "script"), f"local:{tmp_path}/to").stdout)
    assert (told["files"], told["bytes"], told["to"]) == (1, 10, f"local:{tmp_path}/to")


def test_cp_tells_a_failure_in_a_line(cli: Cli, tmp_path: Path) -> None:
    done = cli("cp", f"local:{tmp_path}/nothing", f"{tmp_path}/to")
    assert done.returncode == 125
    assert done.stderr.count(b"\n") == 1
    assert b"No such file" in done.stderr


def test_sync_makes_folders_alike_and_moves_what_changed(cli: Cli, tree: Path, tmp_path: Path) -> None:
    words = ["sync", "--delete", "--json", f"{tree}/", f"local:{tmp_path}/to"]
    first = cli.json(*words)
    assert looks(tmp_path / "to") == looks(tree)
    (tree / "script").write_text("changed")
    (tree / "link").unlink()
    second = cli.json(*words)
    assert looks(tmp_path / "to") == looks(tree)
    assert (first["copied"], second["copied"], second["deleted"], second["unchanged"]) == (3, 1, 1, 1)


def test_sync_down_keeps_what_it_was_not_told_to_delete(cli: Cli, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine").write_text("kept")
    cli("sync", f"local:{tree}", str(tmp_path / "to"))
    assert (tmp_path / "to" / "mine").read_text() == "kept"
    assert looks(tmp_path / "to" / "inner") == looks(tree / "inner")


def test_sync_can_only_tell(cli: Cli, tree: Path, tmp_path: Path) -> None:
    done = cli("sync", "--dry-run", str(tree), f"local:{tmp_path}/to")
    assert b"copy  script" in done.stdout.splitlines()
    assert not (tmp_path / "to").exists()


class Greeter(threading.Thread):
    """Says ``hello`` to whoever connects, and closes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            with connection:
                connection.sendall(b"hello")


@pytest.mark.parametrize("direction", [[], ["--reverse"]])
def test_forward_passes_connections_on_until_ctrl_c(cli: Cli, direction: list[str]) -> None:
    greeter = Greeter()
    child = cli.start("forward", "--json", *direction, f"0={greeter.port}")
    told = json.loads(child.out.readline())
    address, _, port = told["listen"].rpartition(":")
    with socket.create_connection((address, int(port)), timeout=20) as connection:
        assert connection.recv(100) == b"hello"
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, int(port)), timeout=20)
    greeter.listener.close()


def test_forward_says_where_it_listens(cli: Cli) -> None:
    greeter = Greeter()
    child = cli.start("forward", f"0={greeter.port}")
    line = child.out.readline().decode()
    assert line.startswith("127.0.0.1:")
    assert line.rstrip().endswith(f"(here) -> 127.0.0.1:{greeter.port} (local)")
    greeter.listener.close()
