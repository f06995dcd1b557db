"""The plugin of pytest, in sessions of their own that find it by its entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
seen = []

def test_a_command_runs(terminal, hermes_target):
    seen.append(terminal)
    assert terminal.run("echo in", check=True).stdout == b"in\\n"
    assert hermes_target in (terminal.target, "shell")

def test_another(terminal):
    seen.append(terminal)
    terminal.run("cd /; VARIABLE=1")
    print("SHARED" if seen[0] is seen[1] else "OWN", "CLOSED" if "closed" in repr(seen[0]) else "OPEN")
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


class Session:
    """Runs pytest in a folder with these tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "test_it.py").write_text(TESTS)
        (folder / "pytest.ini").write_text("[pytest]\n")

    def __call__(self, *words: str) -> tuple[int, str]:
        env = {**os.environ, "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder), "XDG_CONFIG_HOME": "/none"}
        for name in [name for name in env if name.startswith(("PYTEST", "HERMES_"))]:
            del env[name]
        argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA", *words]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=self.folder, env=env, timeout=120)
        return done.returncode, done.stdout + done.stderr


def test_a_test_has_a_terminal_of_this_machine(session: Session) -> None:
    code, text = session()
    assert code == 0, text
    assert "2 passed" in text
    assert "OWN CLOSED" in text
    assert "hermes-exec: " not in text.partition("test_it")[0]


def test_several_targets_are_tested_one_after_another(session: Session) -> None:
    code, text = session("--hermes-on", "local", "--hermes-on", "bubblewrap", "-v", "-k", "command")
    assert "test_a_command_runs[local] PASSED" in text, text
    assert "test_a_command_runs[bubblewrap]" in text
    assert "hermes-exec: local, bubblewrap" in text
    assert code in {0, 1}  # bubblewrap may not be usable here


def test_a_terminal_may_be_shared(session: Session) -> None:
    code, text = session("--hermes-scope", "module")
    assert code == 0, text
    assert "SHARED OPEN" in text


def test_the_configuration_may_name_the_target(session: Session) -> None:
    (session.folder / "pytest.ini").write_text("[pytest]\nhermes_on = no-such-target\n")
    code, text = session()
    assert code == 1
    assert "--hermes-on no-such-target: " in text
    assert "Traceback" not in text
    assert "During handling" not in text
    assert session("--hermes-on", "local")[0] == 0


def test_a_fixture_of_the_same_name_takes_precedence(session: Session) -> None:
    (session.folder / "test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef terminal():\n    return 3\n"
        "def test_it(terminal):\n    assert terminal == 3\n"
    )
    code, text = session("--hermes-on", "no-such-target", "--hermes-on", "another")
    assert code == 0, text
    assert "1 passed" in text


def test_the_plugin_imports_nothing_of_the_product() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import hermes_exec.pytest_plugin; "
        "print(sorted(name for name in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['hermes_exec', 'hermes_exec.pytest_plugin']"


def test_a_recording_is_replayed_without_the_target(session: Session) -> None:
    code, text = session("--hermes-record", "kept", "--hermes-on", "shell")
    assert code == 0, text
    names = sorted(each.name for each in (session.folder / "kept").glob("*.json"))
    assert names == ["test_it.py-test_a_command_runs.json", "test_it.py-test_another.json"]
    code, text = session("--hermes-replay", "kept", "-k", "command_runs")  # without the target's name
    assert code == 0, text
    (session.folder / "test_it.py").write_text(TESTS.replace("echo in", "echo other"))
    code, text = session("--hermes-replay", "kept", "-k", "command_runs")
    assert code == 1
    assert "was not recorded" in text
    code, text = session("--hermes-replay", "none")
    assert code == 1
    assert "there is no recording" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--hermes-record", "kept", "--hermes-replay", "kept"), "exclude each other"),
        (("--hermes-record", "test_it.py"), "--hermes-record test_it.py: File exists"),
    ],
)
def test_wrong_options_are_wrong_usage_in_one_line(session: Session, words: tuple[str, ...], said: str) -> None:
    code, text = session(*words)
    assert (code, "Traceback" in text) == (4, False)
    assert said in text


def test_targets_of_one_session_have_recordings_of_their_own(session: Session) -> None:
    (session.folder / "test_it.py").write_text(
        "def test_it(terminal, hermes_target):\n    terminal.run('echo ' + hermes_target, check=True)\n"
    )
    targets = ("--hermes-scope", "session", "--hermes-on", "local", "--hermes-on", "%6cocal")  # both are this machine
    code, text = session("--hermes-record", "kept", *targets)
    assert code == 0, text
    assert {path.name for path in (session.folder / "kept").iterdir()} == {"session-local.json", "session--6cocal.json"}
    code, text = session("--hermes-replay", "kept", *targets)
    assert code == 0, text
