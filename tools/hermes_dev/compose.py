"""Compose 2 where this Debian has none: the newer suite's program, as a plugin of ``docker`` in a folder of its own.

It needs no libraries of its own. It is kept below ``.cache``, and ``DOCKER_CONFIG`` names its folder to ``docker``.
"""

from __future__ import annotations

import shutil
import subprocess

from hermes_dev import newer
from hermes_dev.place import CACHE, environment

CONFIG = CACHE / "compose"
"""The value of ``DOCKER_CONFIG``."""
DONOR = "trixie"
_PROGRAM = "usr/libexec/docker/cli-plugins/docker-compose"


def is_missing() -> bool:
    """Whether ``docker`` is here, and has no command ``compose``."""
    if shutil.which("docker") is None:
        return False
    env = environment() | {"DOCKER_CONFIG": str(CONFIG)}
    return subprocess.run(["docker", "compose", "version"], check=False, capture_output=True, env=env).returncode != 0


def add_plugin() -> None:
    """Fetch the program, and put it into the folder.

    Raises:
        DevError: it cannot be fetched.
    """
    plugins, unpacked = CONFIG / "cli-plugins", CONFIG / "unpacked"
    plugins.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(unpacked, ignore_errors=True)
    package = newer.download("docker-compose", DONOR, CONFIG)
    newer.run(["dpkg-deb", "-x", str(package), str(unpacked)])
    (unpacked / _PROGRAM).replace(plugins / "docker-compose")  # whole or not at all
    shutil.rmtree(unpacked)
    package.unlink()
