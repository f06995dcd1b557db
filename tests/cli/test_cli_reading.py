"""Commands that read leave a person's folders as they were: no key, no folder, no database."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.cli.conftest import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

READING = [
    "skill list",
    "skill list --all --json",
    "skill show x",
    "skill history x",
    "skill diff x 1 2",
    "skill verify",
    "skill prove --changed",
    "skill gc",
    "skill run x",
    "skill export x file",
    "skill pin x",
    "skill release x",
    "skill check .",
    "conversations list",
    "conversations show last",
    "conversations search x",
    "conversations export last",
    "jobs",
    "logs x",
    "log",
    "doctor",
    "backends",
    "policy list",
    "policy show skill-run",
    "policy explain skill-run",
    "policy check",
    "profile list",
    "profile show local",
    "profile check",
    "chat --resume last -q x",
]
LIMIT_S = 120


def left_by(home: Path, words: str) -> list[str]:
    """What a command left in a home that was empty but for the folder of temporary files."""
    (home / "tmp").mkdir(parents=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home / "tmp"), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [*COMMAND, *words.split()],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=home,
        env=environ,
        timeout=LIMIT_S,
    )
    assert done.returncode in {0, 1, 2}, (words, done.stderr)
    return sorted(str(each.relative_to(home)) for each in home.rglob("*") if each != home / "tmp")


def test_reading_creates_nothing(tmp_path: Path) -> None:
    homes = [tmp_path / str(number) for number in range(len(READING))]
    with ThreadPoolExecutor(4) as threads:
        left = dict(zip(READING, threads.map(left_by, homes, READING), strict=True))
    assert {words: found for words, found in left.items() if found} == {}
