"""An engine that an ordinary user runs: dockerd below rootlesskit, with ids of its own and no control groups."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_engines
from tests.rigs.docker_engine import Dockerd

if TYPE_CHECKING:
    from collections.abc import Generator

_UID = 61_900
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_NEEDED = ("dockerd", "rootlesskit", "newuidmap", "setpriv", "unshare")
_INSIDE = """\
set -e
mount --make-rprivate /
mount --bind "$1/passwd" /etc/passwd
for each in /etc/subuid /etc/subgid; do mount --bind "$1/subid" $each; done
folder=$1; shift
export HOME="$folder" XDG_RUNTIME_DIR="$folder/run" XDG_CONFIG_HOME="$folder/config"
exec setpriv --pdeathsig TERM --reuid {uid} --regid {uid} --clear-groups \\
  rootlesskit --net=host --copy-up=/etc --copy-up=/run --state-dir="$folder/run/kit" \\
  sh -c 'rm -rf /run/docker /run/containerd; exec "$@"' sh "$@" --rootless
"""


class Rootless(Dockerd):
    """One in a mount namespace where its user is known."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="hx-rootless-", dir="/tmp"))
        (folder / "run").mkdir()
        user = f"hx-rootless:x:{_UID}:{_UID}::{folder}:/bin/sh\n"
        (folder / "passwd").write_text(Path("/etc/passwd").read_text() + user)
        (folder / "subid").write_text("hx-rootless:700000:65536\n")
        for path in (folder, folder / "run"):
            os.chown(path, _UID, _UID)
        super().__init__(
            folder=folder, around=("unshare", "-m", "sh", "-c", _INSIDE.format(uid=_UID), "sh", str(folder))
        )


def rootless() -> Generator[Rootless]:
    """One for some tests, which are skipped, with the reason, where there can be none."""
    require_engines()
    if os.geteuid() != 0:
        pytest.skip("a rootless engine: only root can make a user for it")
    for name in _NEEDED:
        if not shutil.which(name, path=_PATH):
            pytest.skip(f"a rootless engine: {name} is missing. Try: apt-get install rootlesskit uidmap docker.io")
    for path in ("/etc/subuid", "/etc/subgid"):
        if not Path(path).exists():
            pytest.skip(f"a rootless engine: {path} is missing. Try: apt-get install uidmap")
    made = Rootless()
    try:
        yield made
    finally:
        made.remove()
