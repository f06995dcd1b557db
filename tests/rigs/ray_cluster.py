"""A real cluster of Ray on this machine: two nodes, each with its own folder and free ports, and a token."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rigs.bounded import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

RAY = Path(sys.executable).with_name("ray")


class RayCluster:
    """Started by ``ray_cluster``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder / "token"
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._nodes: list[subprocess.Popen[bytes]] = []

    def start_node(self, cpus: int = 2) -> None:
        """Start a node; the first one is the head."""
        number = len(self._nodes)
        port = self.address.partition(":")[2]
        place = ["--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false"]
        if number:
            place = [f"--address={self.address}", "--node-ip-address=127.0.0.1"]
        argv = [
            str(RAY), "start", *place, "--block", f"--num-cpus={cpus}", "--disable-usage-stats",
            f"--object-store-memory={80 << 20}", f"--temp-dir={self.folder}/{number}",
        ]  # fmt: skip
        output = self.folder / f"{number}.txt"
        environ = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        with output.open("wb") as file:
            self._nodes.append(
                subprocess.Popen(argv, env=environ, stdout=file, stderr=file, start_new_session=True, cwd="/")
            )
        wait_until(lambda: b"Ray runtime started" in output.read_bytes() or self._nodes[-1].poll() is not None)
        assert self._nodes[-1].poll() is None, output.read_text()

    def find_raylets(self) -> list[int]:
        """Return the processes of the nodes' schedulers."""
        return find_processes("raylet/raylet", str(self.folder))

    def stop(self) -> None:
        """End all nodes."""
        for node in reversed(self._nodes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        wait_until(lambda: not find_processes(str(self.folder)))


@contextlib.contextmanager
def ray_cluster(nodes: int) -> Generator[RayCluster]:
    """Run a cluster; paths of its sockets have to be short."""
    folder = Path(tempfile.mkdtemp(prefix="hr-", dir="/tmp"))
    cluster = RayCluster(folder)
    try:
        for _ in range(nodes):
            cluster.start_node()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def find_processes(*words: str) -> list[int]:
    """Return the processes whose command line has all the words."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes().decode("utf-8", "replace")
            if all(word in command for word in words):
                found.append(int(path.parent.name))
    return found
