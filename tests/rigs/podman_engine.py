"""Podman's service, which speaks Docker's API, with its storage, its socket and its settings in one folder.

It is root's. Podman gives containers more open files and processes than a confined root may allow, so its settings
name what this process has.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import shutil
import subprocess
import time
from functools import cache
from typing import TYPE_CHECKING

from docker import APIClient
from docker.errors import DockerException

from tests.conftest import require_engines, require_part
from tests.rigs import claims
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.docker_engine import Engine

if TYPE_CHECKING:
    from pathlib import Path

_SETTINGS = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
_PROCESSES = 32768
"""Podman lowers its own limit to this."""


class Podman(Engine):
    """A service that was started for the tests."""

    def __init__(self) -> None:
        self.folder = claims.make_folder("hx-podman")
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        processes = _PROCESSES if most == resource.RLIM_INFINITY else min(most, _PROCESSES)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        settings = self.folder / "containers.conf"
        settings.write_text(_SETTINGS.format(files=files, processes=processes))
        self._env = {**os.environ, "CONTAINERS_CONF": str(settings)}
        self._words = ["podman", "--root", f"{self.folder}/data", "--runroot", f"{self.folder}/run"]
        self._process = self._started()
        super().__init__(f"unix://{self.folder}/sock")

    def _started(self) -> subprocess.Popen[bytes]:
        address = f"unix://{self.folder}/sock"
        words = [*self._words, "system", "service", "--time", "0", address]
        if tied := shutil.which("setpriv"):
            words = [tied, "--pdeathsig", "TERM", *words]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env)
        give_up = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(DockerException), contextlib.closing(APIClient(address)) as client:
                client.ping()
                return process
            if process.poll() is not None or time.monotonic() > give_up:
                process.kill()
                said = (self.folder / "log").read_text(errors="replace")[-600:]
                claims.remove_folder(self.folder)
                raise RuntimeError(f"podman does not start here: {said}")
            time.sleep(0.05)

    def import_file(self, file: Path, repository: str, tag: str) -> None:
        """The same for Podman, whose import takes no tag."""
        self.client.import_image_from_file(str(file), repository)
        self.client.tag(f"{repository}:latest", repository, tag)

    def remove(self) -> None:
        """End it, with all that it has."""
        words = [*self._words, "rm", "--all", "--force", "--time", "0"]
        subprocess.run(words, check=False, capture_output=True, env=self._env)
        self._process.terminate()
        self._process.wait(60)
        claims.remove_folder(self.folder)


@cache
def _shared() -> Podman | str:
    try:
        made = Podman()
    except (RuntimeError, OSError) as error:
        return str(error)
    atexit.register(made.remove)
    return made


def podman() -> Podman:
    """The engine for tests; the calling test is skipped, with the reason, where there can be none."""
    require_engines()
    require_part("podman", "the other engine that speaks Docker's API")
    require_part("root", "runs Podman's service", usable=os.geteuid() == 0)
    shared = _shared()
    if isinstance(shared, Podman):
        return shared
    require_part("Podman's service", shared, usable=False)
    raise AssertionError
