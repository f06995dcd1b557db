"""The command line as an ordinary user runs it (uid 65534), whose rights the kernel checks, and on a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
_REACH = """
reach() {  # have a folder where everybody may pass, though one above it is closed
  above=/
  for part in $(echo "$1" | tr / ' '); do
    above="${above%/}/$part"
    [ "$(stat -c %A "$above" | cut -c10)" = - ] || continue
    [ "$above" = "$1" ] && { chmod o+x "$1"; return; }
    mkdir -p "$2" && mount --bind "$1" "$2" && mount -t tmpfs -o mode=755 none "$above"
    mkdir -p "$1" && mount --move "$2" "$1"
    return
  done
}
kept=$(mktemp -d)
mount -t tmpfs -o mode=755 none "$kept"
"""


def run_as_nobody(
    words: list[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    full: Path | None = None,
    limit_s: float = 120,
    program: tuple[str, ...] = (sys.executable, "-m", "hermes_exec"),
) -> subprocess.CompletedProcess[bytes]:
    """Run ``hermes-exec``, or a ``program`` of the checkout, with these words.

    ``full`` is a folder of which a copy on a full disk takes the place.
    """
    command = [*program, *words]
    paths = [str(ROOT), *(str(ROOT / name) for name in ("backends", "policies", "agent"))]
    known = {**env, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    if os.geteuid() != 0:
        return subprocess.run(command, check=False, capture_output=True, cwd=cwd, env=known, timeout=limit_s)
    script = (
        "set -e\n"
        + _REACH
        + "".join(f'reach "{path}" "$kept/{number}"\n' for number, path in enumerate((sys.base_prefix, str(ROOT))))
    )
    if full is not None:
        script += f"""
mkdir "$kept/copy"; cp -a {full}/. "$kept/copy"
mount -t tmpfs -o size=1m,mode=700,uid={NOBODY},gid={NOBODY} none {full}
cp -a "$kept/copy/." {full}
chown {NOBODY}:{NOBODY} {full}
dd if=/dev/zero of={full}/filling bs=4096 2>/dev/null || true
"""
    script += f'cd "{cwd}"\nexec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --inh-caps=-all "$@"\n'
    argv = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh", *command]
    return subprocess.run(argv, check=False, capture_output=True, env=known, cwd="/", timeout=limit_s)
