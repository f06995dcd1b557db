"""Odd circumstances and odd words: one line that names them, and no answer that programs cannot read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.config.paths import expand_home, home_folder, state_folder

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

LOST = {
    "--timeout": ["--pty", "--timeout", "1"],
    "--grace": ["--detach", "--grace", "1"],
    "--merge": ["--detach", "--merge"],
    "--pty": ["--detach", "--pty"],
    "--json": ["--pty", "--json"],
    "--no-stdin": ["--pty", "--no-stdin"],
    "--name": ["--name", "x"],
}


@pytest.mark.parametrize(("option", "words"), LOST.items(), ids=LOST)
def test_an_option_that_would_be_lost_is_refused(cli: Cli, option: str, words: list[str]) -> None:
    done = cli("run", *words, "--", "touch", "ran")
    assert done.returncode == 2
    message = json.loads(done.stderr)["error"]["message"] if option == "--json" else done.stderr.decode()
    assert message.removeprefix("hermes-exec: ").startswith(f"{option} ")
    assert done.stderr.count(b"\n") == 1
    assert not (cli.cwd / "ran").exists()


@pytest.mark.parametrize("locale", ["C.UTF-8", "C", "POSIX"])
def test_json_is_text_whatever_a_name_is(cli: Cli, locale: str) -> None:
    name = b"caf\xc3\xa9-\xff"
    Path(os.fsdecode(bytes(cli.cwd) + b"/" + name)).write_bytes(b"x")
    done = cli("cp", "--json", os.fsdecode(name), f"local:{cli.cwd}/copy", env={"LANG": locale})
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout.decode())
    assert os.fsencode(report["from"]) == name
    assert (cli.cwd / "copy").read_bytes() == b"x"


def test_a_user_without_a_name_and_a_home_has_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    assert home_folder() == Path("/")
    assert home_folder({"HOME": "not absolute"}) == Path("/")
    assert expand_home("~/x") == Path("/x")
    assert state_folder({}) == Path("/.local/state/hermes_exec")


def test_a_job_that_nobody_would_find_again_is_not_started(cli: Cli) -> None:
    done = cli("run", "--detach", "--", "touch", "ran", env={"XDG_STATE_HOME": "/proc", "HERMES_EXEC_AUDIT": "0"})
    assert done.returncode == 2
    assert b"cannot be written" in done.stderr
    assert b"XDG_STATE_HOME" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (cli.cwd / "ran").exists()


def test_a_command_starts_in_no_removed_folder(cli: Cli) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -I -m hermes_exec run "touch ran"'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, cwd=cli.cwd, env=cli.env, check=False, timeout=170
    )
    assert done.returncode == 2
    assert done.stderr.endswith(b"was removed. Try: cd to another folder\n"), done.stderr


def test_an_error_that_no_disk_takes_is_still_an_exit_code(cli: Cli) -> None:
    with Path("/dev/full").open("wb") as full:
        argv = [sys.executable, "-I", "-m", "hermes_exec", "run", "echo hi"]
        done = subprocess.run(argv, stdout=full, stderr=full, cwd=cli.cwd, env=cli.env, check=False, timeout=170)
    assert done.returncode == 125


def test_an_option_without_its_value_names_the_help_of_its_command(cli: Cli) -> None:
    assert cli("run", "--timeout").stderr.endswith(b"requires an argument. Try: hermes-exec run --help\n")


def test_a_failed_copy_names_what_was_asked_for(cli: Cli) -> None:
    (cli.cwd / "file").write_bytes(b"x")
    up = cli("cp", "file", "local:/proc/none")
    assert up.returncode == 125
    assert b"/proc/none" in up.stderr
    assert b".hx-" not in up.stderr
    down = cli("cp", f"local:{cli.cwd}", "/proc/none")
    assert down.returncode == 125
    assert down.stderr.count(b"/proc/none") == 1


def test_letters_that_the_output_cannot_show_are_escaped(cli: Cli) -> None:
    def told(*words: str) -> bytes:
        argv = [sys.executable, "-m", "hermes_exec", "log", *words]  # without -I, which would ignore the variable
        env = {**cli.env, "PYTHONIOENCODING": "ascii:strict"}
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, cwd=cli.cwd, env=env, timeout=170).stdout

    assert cli("run", "echo \u0161").returncode == 0
    assert b"echo \\u0161" in told()
    (line,) = json.loads(told("--json").decode("ascii"))
    assert line["command"] == "echo \u0161"


def test_the_c_locale_shows_escapes_and_passes_bytes(cli: Cli) -> None:
    # Without UTF-8 mode, as where LC_ALL is set or Python was built so, its streams and file names are ASCII.
    c = {**cli.env, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (cli.cwd / "š").mkdir()
    profile = f"""[backends.box]\ntype = "local"\ncwd = "{cli.cwd}/š"\nenv = {{A = "š"}}\n"""
    (cli.cwd / "own.toml").write_text(profile, encoding="utf-8")

    def told(*words: str) -> bytes:
        argv = [sys.executable, "-m", "hermes_exec", "--config", "own.toml", *words]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, cwd=cli.cwd, env=c, timeout=170).stdout

    assert told("run", "--on", "box", "pwd; echo š $A") == f"{cli.cwd}/š\nš š\n".encode()
    assert cli("run", "echo š").returncode == 0
    assert b"echo \\u0161" in told("log")


def test_a_path_of_any_length_is_told_in_a_short_line(cli: Cli) -> None:
    done = cli("run", "--cwd", "/" + "a" * 100_000, "true")
    assert done.returncode == 2
    assert done.stderr.endswith(b"Try: create it, or pass another cwd\n")
    assert len(done.stderr) < 500


@pytest.mark.parametrize(
    ("limit", "words", "remedy"),
    [
        ("-n 12", ["true"], "ulimit -n 1024"),
        ("-f 0", ["echo hi | cat"], "ulimit -f unlimited"),
        ("-f 0", ["--detach", "true"], "ulimit -f unlimited"),
    ],
    ids=["files", "size", "size of a job"],
)
def test_a_shortage_is_told_with_what_ends_it(cli: Cli, limit: str, words: list[str], remedy: str) -> None:
    limited = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", sys.executable, "-m", "hermes_exec", "run", *words]
    done = subprocess.run(
        limited, env={**cli.env, "HERMES_EXEC_AUDIT": "0"}, cwd=cli.cwd, capture_output=True, check=False
    )
    assert done.returncode in {2, 125}
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert remedy.encode() in done.stderr
