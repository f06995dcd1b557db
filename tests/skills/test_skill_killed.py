"""``hermes-exec skill add`` is ended at some moment: nothing partial is left, and the next one works."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.skills.registry.content import remove_stale_folders
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import IN_FULL, thorough
from tests.rigs.processes import alive, every, stat
from tests.rigs.skill_makers import FILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Require

pytestmark = pytest.mark.timeout(900)
_SKILL = {
    **FILES,
    "SKILL.md": "---\nname: add-numbers\ndescription: Adds two numbers.\n---\nCall `run(a, b)` for their sum.\n",
    "tests/test_main.py": "import pathlib\nimport sys\n\n"
    "sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'scripts'))\n"
    "import main\n\n\ndef test_adds():\n    assert main.run(1, 2) == 3\n",
}
_POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Registrar:
    """The command line, with folders of one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.scratch = folder / "tmp"
        self.scratch.mkdir()
        folder.chmod(0o755)
        self._environ = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TMPDIR": str(self.scratch),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-I", "-m", "hermes_exec", "skill", *words],
            env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def told(self, *words: str) -> Any:
        run = self.start(*words, "--json")
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        return json.loads(out)

    def adds(self, text: str) -> subprocess.Popen[str]:
        source = self._folder / "add-numbers"
        for path, content in {**_SKILL, "README.md": text}.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_text(content)
        return self.start("add", str(source), "--case", '{"arguments": {"a": 1, "b": 2}, "result": 3}', "--json")


def below(pid: int) -> set[tuple[int, str]]:
    """Every process that it started, and those started: the number, and when."""
    parents: dict[int, tuple[int, str]] = {}
    for each in every():
        if words := stat(each):
            parents[each] = (int(words[1]), words[19])

    def found(of: int) -> Iterator[tuple[int, str]]:
        for each, (parent, since) in parents.items():
            if parent == of:
                yield each, since
                yield from found(each)

    return set(found(pid))


def is_there(process: tuple[int, str]) -> bool:
    return alive(process[0]) and stat(process[0])[19:20] == [process[1]]


def folders(pid: int) -> set[Path]:
    """The private folders that it holds."""
    held: set[Path] = set()
    with contextlib.suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held.add(each.readlink())
    return {each for each in held if each.name.startswith("hx-skill-")}


def ended(registrar: Registrar, chance: random.Random, last_s: float, number: int) -> bool:
    """End one that registers at some moment, and look at what is left; whether it had registered before."""
    run = registrar.adds(str(number))
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(chance.random() * last_s)
    how = chance.choice((*_POLITE, signal.SIGKILL))
    processes, kept = below(run.pid), folders(run.pid)
    run.send_signal(how)
    _, said = run.communicate(timeout=60)
    wait_until(lambda: not any(map(is_there, processes)), within_s=20)
    if run.returncode == 0:
        return True
    assert run.returncode in {-how, 128 + how}, said
    if run.returncode == 128 + how:
        assert not [each for each in kept if each.exists()]
        assert not list(registrar.scratch.iterdir())
        assert said == ""
    for each in kept:
        with contextlib.suppress(OSError):
            os.utime(each, (0, 0))  # as if it had been left for long
    remove_stale_folders()
    assert not [each for each in kept if each.exists()]
    return False


def life(folder: Path, seed: int, deaths: int) -> None:
    registrar, chance = Registrar(folder), random.Random(seed)
    import time

    began = time.monotonic()
    _, said = (first := registrar.adds("first")).communicate(timeout=300)
    assert first.returncode == 0, said
    registered = 1
    last_s = time.monotonic() - began
    for number in range(deaths):
        before = registered
        registered += ended(registrar, chance, last_s, number)
        (found,) = registrar.told("list")
        assert found["version"] in {registered, before + 1}
        registered = found["version"]
        registrar.told("verify")
    _, said = (after := registrar.adds("after")).communicate(timeout=300)
    assert after.returncode == 0, said
    assert registrar.told("list")[0]["version"] == registered + 1


@thorough
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_whenever_registering_is_ended_nothing_partial_is_left(require: Require, tmp_path: Path, seed: int) -> None:
    require("bwrap", "makes the sandbox")
    life(tmp_path, seed, deaths=6 if IN_FULL else 2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_the_same_at_many_more_moments(require: Require, tmp_path: Path, seed: int) -> None:
    require("bwrap", "makes the sandbox")
    life(tmp_path, seed, deaths=30)
