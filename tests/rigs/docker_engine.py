"""A Docker engine of our own for the tests: a dockerd with its data, its socket and its state in one folder.

It needs root and nothing of the machine's: no bridge, no service manager, no registry. Its networks take a subnet
that it claims, and the packet filter lets that through while it runs. Where we are not root, an engine that runs
already is used as it is, and images are added to it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.errors import DockerException, ImageNotFound

from hermes_exec_backends.profiles.docker import DockerProfile
from tests.conftest import require_engines, require_part
from tests.rigs import claims, images
from tests.rigs.bounded import PATIENCE_S

DEBIAN = "hermes-exec-test-debian:1"
"""bash, the usual tools and a Python 3, from Debian's packages."""
BUBBLEWRAP = "hermes-exec-test-bubblewrap:1"
"""The same, with bubblewrap."""
UNCONFINED = ("seccomp=unconfined", "systempaths=unconfined")
"""What a container has to be allowed, so that bubblewrap can make a sandbox in it."""
BUSYBOX = "hermes-exec-test-busybox:1"
"""A shell and no Python."""
_IMAGES = {DEBIAN: images.debian, BUBBLEWRAP: images.debian_with_bubblewrap, BUSYBOX: images.busybox}
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


class Engine:
    """An engine at ``address``, and a client of its own for looks from outside."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client: Any = APIClient(address, version="auto", timeout=60)

    def image(self, name: str) -> str:
        """Have an image of the tests there; gives its name. One that a test has made is there already."""
        if name not in _IMAGES:
            return name
        file = _IMAGES[name]()
        repository, _, tag = name.partition(":")
        current = f"{repository}:{file.stem}"  # an engine that runs already may have one of older packages
        try:
            self.client.inspect_image(current)
        except ImageNotFound:
            self.import_file(file, repository, file.stem)
        self.client.tag(current, repository, tag, force=True)
        return name

    def import_file(self, file: Path, repository: str, tag: str) -> None:
        """Make an image of a root file system."""
        self.client.import_image_from_file(str(file), repository, tag)

    def profile(self, image: str = DEBIAN, **options: Any) -> DockerProfile:
        """The profile of a container here."""
        given: dict[str, Any] = {"engine": self.address, "pull": "never", **options}
        if "container" not in options:
            given["image"] = self.image(image)
        return DockerProfile(**given)

    def containers(self) -> list[dict[str, Any]]:
        """All containers of hermes_exec, running or not."""
        found: list[dict[str, Any]] = self.client.containers(all=True, filters={"label": "hermes_exec.lease_s"})
        return found

    def wait_until_none(self, within_s: float = PATIENCE_S) -> None:
        """Return once no container of hermes_exec is there."""
        give_up = time.monotonic() + within_s
        while found := self.containers():
            assert time.monotonic() < give_up, f"still there: {[(each['Names'], each['State']) for each in found]}"
            time.sleep(0.1)

    def inspect(self, name: str) -> dict[str, Any]:
        """What the engine knows of a container."""
        found: dict[str, Any] = self.client.inspect_container(name)
        return found


class Dockerd(Engine):
    """A dockerd that was started for the tests."""

    def __init__(
        self, *more: str, folder: Path | None = None, around: tuple[str, ...] = (), programs: Path | None = None
    ) -> None:
        """Start one.

        Args:
            more: further options of its.
            folder: where it has everything; a new one when left out.
            around: what starts the words that follow it as a program.
            programs: a folder of programs that it finds before the machine's.
        """
        self._path = _PATH if programs is None else f"{programs}:{_PATH}"
        self._more = more
        self._around = around
        self._program = shutil.which("dockerd", path=_PATH) or ""
        self.folder = folder or claims.make_folder("hx-dockerd")
        self._subnet, self._subnet_claim = claims.take_subnet()
        claims.let_through(self._subnet)
        # An engine that has no bridge removes docker0, though it be that of another engine, which runs.
        self._bridge = claims.make_bridge(self._subnet) if Path("/sys/class/net/docker0").exists() else "none"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        super().__init__(f"unix://{self.folder}/sock")

    def start(self) -> None:
        """Start it, and return once it answers. It ends with the thread that calls this."""
        folder = self.folder
        words = [
            *self._around, self._program, "--host", f"unix://{folder}/sock", "--pidfile", f"{folder}/pid",
            "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec",
            f"--bridge={self._bridge}", "--iptables=false", "--ip6tables=false",
            "--default-address-pool", f"base={self._subnet},size=24",
            # Where the machine has a containerd, it is taken, and shared with the engine that runs already.
            "--containerd-namespace", folder.name, "--containerd-plugins-namespace", f"{folder.name}-plugins",
            *self._more,
        ]  # fmt: skip
        # Its mounts come and go with containers; whoever copies all mounts of this machine must not meet them.
        words = ["unshare", "--mount", "--propagation", "slave", *words]
        if tied := shutil.which("setpriv"):
            words = [tied, "--pdeathsig", "TERM", *words]
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PATH": self._path}
            )
        give_up = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(DockerException), contextlib.closing(APIClient(f"unix://{folder}/sock")) as client:
                client.ping()
                return
            if self._process.poll() is not None or time.monotonic() > give_up:
                said = (folder / "log").read_text(errors="replace")[-600:]
                self.remove()
                raise RuntimeError(f"dockerd does not start here: {said}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """The process of the running engine."""
        return int((self.folder / "pid").read_text())

    def stop(self) -> None:
        """End it; its containers end too."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        """End it, with all that it has."""
        self.stop()
        claims.remove_folder(self.folder)
        claims.remove_subnet(self._subnet)
        self._subnet_claim.release()


@cache
def _shared() -> Engine | str:
    """The engine of this test process, or why there is none."""
    if os.geteuid() == 0 and shutil.which("dockerd", path=_PATH):
        try:
            made = Dockerd()
        except (RuntimeError, OSError) as error:
            return str(error)
        atexit.register(made.remove)
        return made
    try:
        found = Engine(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    except DockerException:
        return "no dockerd to start as root, and no engine that runs"
    atexit.register(found.client.close)
    return found


def engine() -> Engine:
    """The engine for tests; the calling test is skipped, with the reason, where there can be none."""
    require_engines()
    shared = _shared()
    if isinstance(shared, Engine):
        return shared
    require_part("a Docker engine", shared, usable=False)
    raise AssertionError


def own_engine() -> Dockerd:
    """The same, if it is one that a test may stop and start."""
    found = engine()
    if isinstance(found, Dockerd):
        return found
    require_part("a Docker engine of our own", "dockerd and root", usable=False)
    raise AssertionError
