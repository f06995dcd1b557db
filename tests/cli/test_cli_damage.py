"""Each file and folder of ours, damaged or closed to us: the commands that use it say so in one line, with a remedy."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import require_part
from tests.rigs.breadth import WHOLE, choose
from tests.rigs.ordinary import NOBODY, ROOT, run_as_nobody
from tests.rigs.processes import every, read

if TYPE_CHECKING:
    from collections.abc import Generator

STATE, CONFIG = "state/hermes_exec", "config/hermes_exec"
CHAT = ("chat", "-q", "hi", "--replay", "demo", "--approve", "allow")
RUN_SKILL = ("skill", "run", "add-numbers", "--arguments", '{"a": 1, "b": 2}')
LOG: list[tuple[str, ...]] = [("conversations", "list"), CHAT]
ITEMS: dict[str, list[tuple[str, ...]]] = {
    STATE: [("run", "true"), ("run", "--detach", "true"), ("jobs",), ("doctor",), ("log",), ("skill", "list"), *LOG],
    CONFIG: [("run", "true"), ("skill", "list")],
    f"{CONFIG}/hermes.toml": [("run", "true"), ("doctor",)],
    f"{CONFIG}/skill-keys": [("skill", "list")],
    f"{CONFIG}/skill-keys/key.pem": [("skill", "list")],
    f"{STATE}/audit.jsonl": [("log",), ("run", "true")],
    f"{STATE}/guests": [("jobs",), ("run", "--detach", "true")],
    f"{STATE}/guests/*.json": [("jobs",)],
    f"{STATE}/skills": [("skill", "list")],
    f"{STATE}/skills/registry.sqlite": [("skill", "list"), RUN_SKILL],
    f"{STATE}/skills/runs.sqlite": [("skill", "show", "add-numbers"), RUN_SKILL],
    f"{STATE}/skills/lock": [("skill", "pin", "add-numbers")],
    f"{STATE}/proofs": [RUN_SKILL],
    f"{STATE}/proofs/*.json": [RUN_SKILL],
    f"{STATE}/conversations.sqlite": LOG,
}
_REGISTER = """
import sys
from pathlib import Path
from hermes_exec_agent.skills.registry.home import default_home
from tests.rigs.skill_makers import registered
registered(default_home(), Path(sys.argv[1]))
"""


class Person:
    """An ordinary user whose files were all made by real commands."""

    def __init__(self, folder: Path) -> None:
        self.home, self._model = folder / "home", folder / "model"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.home / "state"),
        }
        (self.home / CONFIG).mkdir(parents=True)
        self.home.chmod(0o700)
        (self.home / CONFIG / "hermes.toml").write_text('[backends.box]\ntype = "local"\n')
        (self.home / "made").mkdir()
        paths = os.pathsep.join(str(ROOT / name) for name in (".", "backends", "policies", "agent"))
        words = [sys.executable, "-c", _REGISTER, str(self.home / "made")]
        subprocess.run(words, check=True, cwd=ROOT, env={**self.env, "PYTHONPATH": paths})
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", self.home], check=True)
        for each in (("run", "--detach", "true"), RUN_SKILL, CHAT, ("skill", "pin", "add-numbers")):
            done = self.run(*each)
            assert done.returncode == 0, done.stderr
        subprocess.run(["cp", "-a", self.home, self._model], check=True)

    def run(self, *words: str, full: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return run_as_nobody(list(words), cwd=self.home, env=self.env, full=full)

    def restore(self) -> None:
        subprocess.run(["chmod", "-R", "u+rwX", self.home], check=True)
        shutil.rmtree(self.home)
        subprocess.run(["cp", "-a", self._model, self.home], check=True)

    def owns(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)


@pytest.fixture(scope="module")
def person() -> Generator[Person]:
    require_part("bwrap", "it makes the sandbox of a skill")
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        made = Person(Path(folder))
        yield made
        made.restore()
        for pid in every():  # guests of jobs, which live on for some minutes
            if f"HOME={made.home}".encode() in read(pid, "environ").split(b"\0"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def swap(person: Person, path: Path) -> None:
    """A file where a folder was, or a folder where a file was."""
    if path.is_dir():
        shutil.rmtree(path)
        path.write_bytes(b"x")
    else:
        path.unlink()
        path.mkdir()
    person.owns(path)


def later(_: Person, path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version = 99")
    base.close()


Damage = Callable[[Person, Path], object]
OF_ALL: dict[str, Damage] = {
    "closed": lambda _, path: path.chmod(0),
    "read-only": lambda _, path: path.chmod(0o500 if path.is_dir() else 0o400),
    "another kind": swap,
}
OF_FILES: dict[str, Damage] = {
    "random": lambda _, path: path.write_bytes(os.urandom(5000)),
    "cut": lambda _, path: os.truncate(path, path.stat().st_size // 2),
}
_NOTES = {"run": 2, "jobs": 2, "chat": 9, "conversations": 2}
"""Lines that a command may say; of some one is a note, and a chat says what happens in it."""
QUICK = {"closed", "random"}
_CASES = 5
"""So many damages of an item are tried in a run that takes samples."""


def wrong(done: subprocess.CompletedProcess[bytes], words: tuple[str, ...]) -> str:
    """What is not as documented of a command that met damage."""
    said = done.stderr.decode()
    if "Traceback" in said or "internal error" in said or done.returncode not in {0, 1, 2, 125}:
        return "it is no line for a person"
    if len(said.splitlines()) > _NOTES.get(words[0], 1):
        return "it is more than one line"
    if done.returncode in {2, 125} and "Try: " not in said:
        return "there is no remedy"
    return ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("item", ITEMS)
def test_damage_is_told_in_a_line_with_a_remedy(person: Person, item: str) -> None:
    found: list[tuple[str, ...]] = []
    person.restore()
    (path, *_) = sorted(person.home.glob(item))
    damages = dict(OF_ALL) if path.is_dir() else {**OF_ALL, **OF_FILES}
    if path.suffix == ".sqlite":
        damages["later"] = later
    cases = [(name, words) for name in damages for words in ITEMS[item] if WHOLE or name in QUICK]
    for name, words in choose(f"damage of {item}", cases, _CASES):
        person.restore()
        damages[name](person, path)
        done = person.run(*words)
        if why := wrong(done, words):
            found.append((name, " ".join(words[:2]), why, str(done.returncode), done.stderr.decode()[-300:]))
    assert found == []


@pytest.mark.parametrize(
    ("item", "words", "code", "said"),
    [
        (CONFIG, ("run", "true"), 2, "hermes.toml: Permission denied"),
        (f"{CONFIG}/hermes.toml", ("run", "true"), 2, "hermes.toml: Permission denied"),
        (f"{STATE}/conversations.sqlite", ("conversations", "list"), 125, "conversations.sqlite: Permission denied"),
        (f"{STATE}/skills/registry.sqlite", ("skill", "list"), 125, "cannot be read: Permission denied"),
        (f"{STATE}/skills/lock", ("skill", "pin", "add-numbers"), 125, "nothing can be recorded: Permission denied"),
    ],
)
def test_what_is_closed_to_us_is_named(person: Person, item: str, words: tuple[str, ...], code: int, said: str) -> None:
    person.restore()
    (person.home / item).chmod(0)
    done = person.run(*words)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode()
    assert "Try: ls -ld " in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_a_file_in_place_of_the_state_folder_is_not_taken_for_an_empty_one(person: Person) -> None:
    person.restore()
    swap(person, person.home / STATE)
    done = person.run("conversations", "list")
    assert (done.returncode, b"Not a directory" in done.stderr) == (125, True), done.stderr
    assert b"records" in (doctor := person.run("doctor")).stdout
    assert b"cannot be written to" in doctor.stdout


@pytest.mark.timeout(300)
def test_a_full_disk_is_told_by_its_name(person: Person) -> None:
    require_part("root", "it mounts a small disk", usable=os.geteuid() == 0)
    state = person.home / "state"
    said: dict[str, tuple[int, str]] = {}
    for words in (("run", "--detach", "true"), CHAT, ("skill", "pin", "add-numbers"), ("jobs",), ("doctor",)):
        person.restore()
        done = person.run(*words, full=state)
        assert not wrong(done, words), (words, done.stderr)
        said[" ".join(words[:2])] = done.returncode, done.stderr.decode()
    assert said["run --detach"][0] == 2
    assert said["chat -q"][0] == 125
    for each in ("run --detach", "chat -q"):
        assert "free space; df -h" in said[each][1], said[each]
