"""The real command, in a process of its own, with a person's folders that belong to one test alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests.rigs.bounded import wait_until
from tests.rigs.processes import with_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

COMMAND = [sys.executable, "-I", "-m", "hermes_exec"]
LIMIT_S = 170


class Child(subprocess.Popen[bytes]):
    """A command that runs, with the streams that it was given pipes for."""

    @property
    def out(self) -> IO[bytes]:
        """Its standard output."""
        assert self.stdout is not None
        return self.stdout

    @property
    def err(self) -> IO[bytes]:
        """Its standard error."""
        assert self.stderr is not None
        return self.stderr


class Cli:
    """Starts ``hermes-exec`` in a folder, with an environment."""

    def __init__(self, home: Path) -> None:
        self.cwd = home / "work"
        self.cwd.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
        }
        self.started: list[Child] = []

    def __call__(
        self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end; ``env`` is for this once."""
        return subprocess.run(
            [*COMMAND, *words],
            check=False,
            capture_output=True,
            cwd=self.cwd,
            env={**self.env, **(env or {})},
            timeout=LIMIT_S,
            input=stdin,
        )

    def json(self, *words: str) -> Any:
        """What it prints, which must be one JSON document."""
        done = self(*words)
        assert done.stderr == b"", done.stderr
        return json.loads(done.stdout)

    def start(self, *words: str, stdin: Any = subprocess.DEVNULL, stdout: Any = PIPE) -> Child:
        """Start it and come back at once; it is killed at the test's end."""
        child = Child([*COMMAND, *words], cwd=self.cwd, env=self.env, stdin=stdin, stdout=stdout, stderr=PIPE)
        self.started.append(child)
        return child

    def configure(self, text: str) -> Path:
        """Give the person a configuration file."""
        path = Path(self.env["XDG_CONFIG_HOME"]) / "hermes_exec" / "hermes.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def cli(tmp_path: Path) -> Generator[Cli]:
    """``cli("run", "true")`` runs it."""
    command = Cli(tmp_path)
    yield command
    for child in command.started:
        child.terminate()  # so that what it started in the place ends too, not only when its lease does
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    if any(tmp_path.glob("state/hermes_exec/guests/*.json")):
        for job in json.loads(command("jobs", "--json").stdout):
            command("kill", "--grace", "0", job["job"])
        command("jobs", "--prune")


@pytest.fixture
def running() -> Callable[[str], list[int]]:
    """``running(nap)`` gives pids."""
    return lambda mark: with_mark(mark.replace(" ", "\0"))


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Wait for something that no event tells."""
    return wait_until


@pytest.fixture
def nap() -> str:
    """``sleep`` with a time that no other test has, so that its processes can be told apart."""
    return f"sleep 9{os.getpid()}.{time.monotonic_ns() % 10**9}"
