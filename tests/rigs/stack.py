"""The compose stack of deploy/ in a folder of its own, on an engine of the tests, and what is asked of it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.conftest import require_part
from tests.rigs.claims import free_port
from tests.rigs.docker_engine import Dockerd, own_engine
from tests.rigs.stack_images import CORE, DATABASE, DEPLOY, add_stack

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "of-the-database-0123456789"
KEY = "sk-of-the-person-0123456789"
CONTAINER = "hermes-agent-core"
_USER = 1000
_FILES = ("compose.yaml", "seccomp.json", "vector.sql")
_PATIENCE_S = 240.0


def compose() -> str:
    """The Compose that is here: the plugin, or the program of Debian."""
    program = require_part("docker", "it runs programs in the stack's containers")
    plugin = subprocess.run([program, "compose", "version"], check=False, capture_output=True)
    return "docker compose" if plugin.returncode == 0 else require_part("docker-compose", "it starts the stack")


@dataclass(frozen=True)
class Folder:
    """An empty folder with what docs/lab.md has one put into it."""

    path: Path
    engine: Dockerd

    @property
    def command(self) -> str:
        """Compose, in this folder, for this engine."""
        words = ["env", f"--chdir={self.path}", f"DOCKER_HOST={self.engine.address}"]
        return f"{shlex.join(words)} {compose()}"


def prepare(path: Path) -> Folder:
    """The folder and the images; the calling test is skipped, with the reason, where there can be no stack."""
    engine = own_engine()
    compose()
    add_stack(engine)
    for name in _FILES:
        shutil.copy(DEPLOY / name, path)
    for name in ("data", "skills"):
        (path / name).mkdir()
        os.chown(path / name, _USER, _USER)
    settings = {
        "HERMES_IMAGE": CORE,
        "HERMES_DB_IMAGE": DATABASE,
        "HERMES_DB_PASSWORD": SECRET,
        "HERMES_PORT": str(free_port()),
        "HERMES_DB_PORT": str(free_port()),
        "DEFAULT_MODEL": "scripted",
        "OPENAI_API_KEY": KEY,
    }
    (path / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return Folder(path, engine)


@dataclass(frozen=True)
class Stack:
    """A stack that runs."""

    folder: Folder
    url: str

    def run(self, *argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A program in the agent's container, as ``docker exec`` starts it."""
        given = [word for name, value in (env or {}).items() for word in ("--env", f"{name}={value}")]
        return self.docker("exec", *given, CONTAINER, *argv)

    @property
    def gateway(self) -> str:
        """The address by which this machine is reached from the stack's network."""
        found = self.docker("network", "inspect", "hermes-net", "--format", "{{(index .IPAM.Config 0).Gateway}}")
        return found.stdout.strip()

    def docker(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The engine's own command."""
        environment = {**os.environ, "DOCKER_HOST": self.folder.engine.address}
        return subprocess.run(
            ["docker", *words], check=False, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL
        )

    def get(self, path: str, token: str = "") -> tuple[int, dict[str, object]]:
        """The status and the document that the server answers with."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=60) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def until(self, path: str, status: int) -> dict[str, object]:
        """The document, once the server answers with this status."""
        give_up = time.monotonic() + _PATIENCE_S
        told: object = "nothing"
        while time.monotonic() < give_up:
            with contextlib.suppress(OSError):
                code, told = self.get(path)
                if code == status:
                    assert isinstance(told, dict)
                    return told
            time.sleep(0.3)
        raise AssertionError(f"{path} never answered {status}: {told}\n{self.docker('logs', CONTAINER)}")
