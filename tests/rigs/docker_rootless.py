"""An engine that an ordinary user runs: dockerd below rootlesskit, with ids of its own and no control groups."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import require_engines, require_part
from tests.rigs import claims
from tests.rigs.docker_engine import Dockerd

if TYPE_CHECKING:
    from collections.abc import Generator

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
        folder = claims.make_folder("hx-rootless")
        (folder / "run").mkdir()
        self._user, self._user_claim = claims.take_user()
        first, self._further_claim = claims.take_one("subids", range(700_000, 700_000 + 500 * 65536, 65536))
        user = f"hx-rootless:x:{self._user}:{self._user}::{folder}:/bin/sh\n"
        (folder / "passwd").write_text(Path("/etc/passwd").read_text() + user)
        (folder / "subid").write_text(f"hx-rootless:{first}:65536\n")
        for path in (folder, folder / "run"):
            os.chown(path, self._user, self._user)
        super().__init__(
            folder=folder, around=("unshare", "-m", "sh", "-c", _INSIDE.format(uid=self._user), "sh", str(folder))
        )

    def remove(self) -> None:
        """End it, with all that it and its user have."""
        super().remove()
        claims.remove_traces(self._user)
        for claim in (self._user_claim, self._further_claim):
            claim.release()


def rootless() -> Generator[Rootless]:
    """One for some tests, which are skipped, with the reason, where there can be none."""
    require_engines()
    require_part("root", "makes the user of a rootless engine", usable=os.geteuid() == 0)
    for name in _NEEDED:
        require_part(name, "is a part of a rootless engine", usable=shutil.which(name, path=_PATH) is not None)
    for path in ("/etc/subuid", "/etc/subgid"):
        require_part(path, "is where a user's further ids are; Debian's passwd has it", usable=Path(path).exists())
    made = Rootless()
    try:
        yield made
    finally:
        made.remove()
