"""Make the environment that everything else runs in, from ``dev.lock`` and nothing of the person's own.

Safe to run twice (a stamp records that nothing changed) and safe to run at the same time as another (a file
lock; the second one waits and then finds the work done).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_dev.place import CACHE, LOCK, ROOT, DevError, environment, say, venv, venv_python
from hermes_dev.provision import install_venv_support, venv_package

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


def ensure(*, provision: bool = False) -> None:
    """Make the environment match ``pyproject.toml`` and ``dev.lock``; nearly free when it already does.

    With ``provision`` a Debian package may be installed where no environment can be made without it.

    Raises:
        DevError: it could not be made; no stamp is left, so that the next call tries again.
    """
    if up_to_date():
        return
    with one_at_a_time():
        if up_to_date():
            return
        stamp().unlink(missing_ok=True)
        create(provision=provision)
        install()
        stamp().write_text(compute_digest(), encoding="ascii")


def stamp() -> Path:
    """The file that records what the environment was made from."""
    return venv() / ".made-from"


def compute_digest() -> str:
    """A digest of all that the environment is made from, the checkout's own place included."""
    digest = hashlib.sha256(str(ROOT).encode())
    for source in (ROOT / "pyproject.toml", LOCK):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def up_to_date() -> bool:
    """True when the environment works and was made from the files as they are now."""
    try:
        return stamp().read_text(encoding="ascii") == compute_digest() and interpreter_works()
    except FileNotFoundError:
        return False


def interpreter_works() -> bool:
    """False when there is none, or when the Python behind it has been removed."""
    try:
        return subprocess.run([venv_python(), "-I", "-c", ""], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


@contextmanager
def one_at_a_time() -> Generator[None]:
    """Hold the checkout's set-up lock; the kernel releases it when this process ends."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "setup.lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./dev is setting up; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def create(*, provision: bool) -> None:
    """Create the environment unless a working one is there, with pip where this Python can bring it."""
    if interpreter_works():
        return
    where = venv()
    shutil.rmtree(where, ignore_errors=True)
    if not can_bring_pip() and not installers():
        if not provision:
            raise DevError(f"this Python cannot make a virtual environment. Try: apt-get install {venv_package()}")
        install_venv_support()
    say(f"creating {where.name} with Python {sys.version.split()[0]}")
    # Asked of a child: a package that was installed a moment ago is not seen by this process.
    with_pip = [] if can_bring_pip() else ["--without-pip"]
    if quiet([sys.executable, "-I", "-m", "venv", *with_pip, str(where)]) is not None:
        raise DevError("the virtual environment could not be created (the reason is above)")


def can_bring_pip() -> bool:
    """True when this Python has ``venv`` and ``ensurepip``; Debian keeps the second apart."""
    probe = "import venv, ensurepip; ensurepip.version()"
    return quiet([sys.executable, "-I", "-c", probe], show=False) is None


def find_uv() -> str:
    """Return the path of the environment's uv, or of another one.

    Raises:
        DevError: there is none.
    """
    for uv in (str(venv() / "bin" / "uv"), shutil.which("uv")):
        if uv and os.access(uv, os.X_OK):
            return uv
    raise DevError("there is no uv. Try: ./dev setup")


def installers() -> list[list[str]]:
    """Commands that install into the environment, best first: its own uv, another's uv, some pip."""
    python = venv_python()
    programs = [uv for uv in (str(venv() / "bin" / "uv"), shutil.which("uv")) if uv and os.access(uv, os.X_OK)]
    found = [[uv, "pip", "install", "--quiet", "--python", python] for uv in programs]
    if os.access(python, os.X_OK) and quiet([python, "-I", "-m", "pip", "--version"], show=False) is None:
        found.append([python, "-I", "-m", "pip", "install", "--quiet"])
    elif importlib.util.find_spec("pip"):
        found.append([sys.executable, "-I", "-m", "pip", "--python", python, "install", "--quiet"])
    return found


def install() -> None:
    """Install what ``dev.lock`` names, checked by hash, then this checkout as an editable package."""
    say("installing the developers' tools from dev.lock")
    with tempfile.TemporaryDirectory() as folder:
        only_uv = Path(folder) / "uv.txt"
        only_uv.write_text(read_locked("uv"), encoding="utf-8")
        # First uv, which does the rest ten times as fast; where it cannot reach an index, pip goes on.
        attempt(["--require-hashes", "-r", str(only_uv)])
    attempt(["--require-hashes", "-r", str(LOCK)])
    attempt(["--no-deps", "--no-build-isolation", "-e", str(ROOT)])


def read_locked(name: str) -> str:
    """The lines of ``dev.lock`` that pin one package."""
    block = re.search(rf"^{re.escape(name)}==.*(?:\n +.*)*", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return block.group() if block else ""


def attempt(arguments: Sequence[str]) -> None:
    """Install with the first installer that can; each refusal is shown."""
    for installer in installers():
        if quiet([*installer, *arguments]) is None:
            return
    raise DevError(
        f"could not install {' '.join(arguments)} (the reason is above). "
        "Try: a network, or settings of pip or uv that reach a package index"
    )


def quiet(argv: Sequence[str], *, show: bool = True) -> str | None:
    """Run ``argv``; None when it worked, else what it printed, which is also shown on request."""
    done = subprocess.run(
        argv,
        check=False,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode == 0:
        return None
    if show:
        print(done.stdout.rstrip(), file=sys.stderr, flush=True)
    return done.stdout
