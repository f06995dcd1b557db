"""``./dev test``: which tests run, with which Python, and the checks that run with them."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from hermes_dev.checks import run_checks
from hermes_dev.place import CACHE, ROOT, UsageError, call, environment, replace, say, venv_python
from hermes_dev.unsteady import run_suite

CHECKS_VARIABLE = "HERMES_DEV_CHECKS"
SEED_VARIABLE = "HERMES_DEV_SEED"
_OLDEST = (3, 11)
_WORKERS_A_PROCESSOR = 3
"""Tests wait more than they compute; but each worker collects all of them, which takes it many seconds."""
_MOST_WORKERS = 16


@dataclass(frozen=True)
class Request:
    """What ``./dev test`` was called with."""

    provision: bool = False
    in_full: bool = False
    shard: str = ""
    python: str = ""
    pytest: list[str] = field(default_factory=list[str])
    """Arguments for pytest; with any, the tests run without the checks."""

    @property
    def breadth(self) -> str:
        """The value of ``HERMES_DEV_SUITE``; see tests/rigs/breadth.py."""
        if self.in_full or self.pytest:
            return "all"
        return "ci" if self.provision else "plain"


def parse(arguments: list[str]) -> Request:
    """Read the options of ``./dev test``; the other arguments are pytest's.

    Raises:
        UsageError: an option lacks its value.
    """
    flags = {"--provision": False, "--all": False}
    values = {"--shard": "", "--python": ""}
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if argument in flags:
            flags[argument] = True
        elif name in values:
            values[name] = value if equals else next(left, "")
            if not values[name]:
                raise UsageError(f"{name} needs a value. Try: ./dev help")
        else:
            rest.append(argument)
    return Request(flags["--provision"], flags["--all"], values["--shard"], values["--python"], rest)


def become(request: Request) -> NoReturn:
    """Start ``./dev test`` again with the interpreter that the request names, in an environment of its own.

    Raises:
        UsageError: this machine has no such interpreter.
    """
    python = find_python(request.python)
    flags = {"--provision": request.provision, "--all": request.in_full, f"--shard={request.shard}": request.shard}
    words = [flag for flag, given in flags.items() if given]
    replace([python, "-I", str(ROOT / "tools"), "test", *words, *request.pytest], PYTHON=python)


def find_python(version: str) -> str:
    """Return the path of an interpreter of this version, such as ``3.13``.

    Raises:
        UsageError: the version is none that the project supports, or this machine has no such interpreter.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _OLDEST:
        raise UsageError(f"--python {version}: the project supports 3.11 and newer. Try: --python 3.13")
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    uv = Path.home() / ".local/share/uv/python"
    installed = [*pyenv.glob(f"versions/{version}.*/bin/{name}"), *uv.glob(f"cpython-{version}.*/bin/{name}")]
    for candidate in [str(ROOT / f".venv-{version}/bin/python"), shutil.which(name), *map(str, sorted(installed))]:
        if candidate and _version_of(candidate) == version:
            return candidate
    raise UsageError(f"this machine has no Python {version}. Try: install it, or PYTHON=/path/to/{name} ./dev test")


def _version_of(python: str) -> str:
    """Return ``3.13`` and the like for an interpreter that starts, else an empty string."""
    probe = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-I", "-c", probe], check=False, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()


class Beside:
    """The checks, while the tests run: pytest prints their outcome above its closing line (tests/conftest.py)."""

    def __init__(self, *, in_full: bool) -> None:
        CACHE.mkdir(exist_ok=True)
        self.failed: list[str] = ["the checks themselves"]
        self._in_full = in_full
        self._path = CACHE / f"checks-{os.getpid()}.json"
        self._path.unlink(missing_ok=True)
        os.environ[CHECKS_VARIABLE] = str(self._path)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> list[str]:
        """Wait for the checks; return the names of those that failed."""
        self._thread.join()
        self._path.unlink(missing_ok=True)
        return self.failed

    def _run(self) -> None:
        try:
            self.failed = run_checks(in_full=self._in_full)
        finally:
            written = self._path.with_suffix(".new")
            written.write_text(json.dumps(self.failed), encoding="utf-8")
            written.rename(self._path)


def run(request: Request) -> int:
    """Run what was asked for; pytest's closing line is the last one. Returns the exit code."""
    whole = not (request.pytest or request.shard)
    os.environ["HERMES_DEV_SUITE"] = request.breadth
    os.environ["HERMES_DEV_SHARD"] = request.shard
    if request.breadth != "all":
        seed = os.environ.setdefault(SEED_VARIABLE, str(choose_seed(request)))
        say(f"samples are taken with {SEED_VARIABLE}={seed}")
    words = ["-rfEs", *(request.pytest or ["-n", str(count_workers(request.breadth)), "--dist", "loadscope"])]
    in_full = request.in_full or request.provision or "CI" in os.environ
    checks = Beside(in_full=in_full) if whole else None
    try:
        if whole and not (ROOT / "tests" / "__pycache__").exists():
            compile_tests()
        code = run_suite(pytest, words) if request.provision and not request.pytest else call(pytest(*words))
    finally:
        failed = checks.join() if checks else []
    return code or int(bool(failed))


def choose_seed(request: Request) -> int:
    """Return a seed for samples: that of the commit for a whole run, so that it can be repeated, else a random one."""
    if request.provision:
        argv = ["git", "-C", str(ROOT), "rev-parse", "--short=6", "HEAD"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return int(done.stdout.strip()[:6], 16)
    return secrets.randbelow(10**6)


def compile_tests() -> None:
    """Compile the tests of a new checkout once, as pytest does it while it collects; else each worker would."""
    argv = pytest("--collect-only", "-q", "-p", "no:cacheprovider")
    alone = {name: value for name, value in environment().items() if name != CHECKS_VARIABLE}
    subprocess.run(argv, check=False, cwd=ROOT, env=alone, capture_output=True)


def count_workers(breadth: str) -> int:
    """Return how many processes run the suite: fewer for a small sample, which leaves processors to the checks."""
    of_each = 1 if breadth == "plain" else _WORKERS_A_PROCESSOR
    return min(of_each * (os.cpu_count() or 1), _MOST_WORKERS)


def pytest(*arguments: str) -> list[str]:
    """Return the argv that starts the suite."""
    return [venv_python(), "-I", "-m", "pytest", *arguments]
