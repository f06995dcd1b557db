"""``run`` in several targets at once, and the groups of a configuration."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.config.groups import expand_groups
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]

CONFIG = """
[backends.a]
type = "local"
env = { CODE = "3" }
[backends.bb]
type = "local"
env = { CODE = "4" }
[backends.gone]
type = "ssh"
host = "127.0.0.1"
port = 1
[groups]
both = ["a", "bb", "group:one"]
one = ["a"]
"""


@pytest.fixture
def several(cli: Cli) -> Cli:
    cli.configure(CONFIG)
    return cli


def test_each_line_has_its_target_and_the_highest_code_is_returned(several: Cli) -> None:
    done = several("run", "--on", "a", "--on", "bb", "printf '%s\\nend' $CODE; echo problem >&2; exit $CODE")
    assert done.returncode == 4
    assert sorted(done.stdout.splitlines()) == [b"a  | 3", b"a  | end", b"bb | 4", b"bb | end"]
    lines = done.stderr.decode().splitlines()
    assert sorted(lines[:2]) == ["a  | problem", "bb | problem"]
    assert [line.split()[1:3] for line in lines[2:]] == [["TARGET", "EXIT"], ["a", "3"], ["bb", "4"]]


def test_json_is_one_line_a_target_and_a_target_that_fails_has_its_error(several: Cli) -> None:
    done = several("run", "--json", "--on", "gone", "--on", "group:both", "echo $CODE")
    found = {line["target"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 125
    assert (found["a"]["stdout"], found["bb"]["stdout"]) == ("3\n", "4\n")
    assert "refused the connection" in found["gone"]["error"]


def test_fail_fast_ends_the_others(several: Cli, running: Running, nap: str) -> None:
    done = several("run", "--fail-fast", "--on", "a", "--on", "bb", f"test $CODE = 3 || {nap}; exit $CODE")
    assert done.returncode == 3
    assert not running(nap)
    assert done.stderr.splitlines()[-1].split()[1:3] == [b"bb", b"-"]


def test_ctrl_c_ends_all(several: Cli, running: Running, until: Until, nap: str) -> None:
    child = several.start("run", "--on", "a", "--on", "bb", nap)
    until(lambda: len(running(nap)) == 2)
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130
    assert not running(nap)


def test_a_reader_that_ends_ends_all(several: Cli, running: Running, nap: str) -> None:
    child = several.start("run", "--on", "a", "--on", "bb", f"yes & {nap}")
    assert child.stdout is not None
    child.stdout.close()
    assert child.wait(20) == 141
    assert not running(nap)
    assert child.stderr is not None
    assert b"the reader of the output has ended" in child.stderr.read()


def test_at_most_so_many_run_at_once(several: Cli, tmp_path: Path) -> None:
    words = ("run", "--max-parallel", "1", "--on", "group:both")
    assert several(*words, f"mkdir {tmp_path}/one && sleep 0.2 && rmdir {tmp_path}/one").returncode == 0


def test_jobs_start_in_all(several: Cli) -> None:
    done = several("run", "--detach", "--on", "group:both", "true")
    names = [line.split()[0] for line in done.stdout.decode().splitlines()]
    assert (done.returncode, sorted(names)) == (0, ["a", "bb"])


def test_a_secret_is_hidden_although_it_has_lines(several: Cli) -> None:
    several.configure(CONFIG + '[backends.s]\ntype = "local"\nsecrets = { KEY = "env:MINE" }\n')
    secret = "first-part-of-it\nsecond-part-of-it"
    done = several("run", "--on", "a", "--on", "s", 'echo "$KEY"', env={"MINE": secret})
    assert done.returncode == 0
    assert b"part-of-it" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--on", "group:none"], "there is no group 'none'"),
        (["--on", "a", "--on", "nonsense"], "no profile and no kind of target is called 'nonsense'"),
        (["--on", "a", "--on", "bb", "--pty"], "--pty is for one target"),
        (["--on", "a", "--on", "bb", "--stdin"], "--stdin is for one target"),
        (["--on", "a", "--fail-fast"], "are for several targets"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(
    several: Cli, tmp_path: Path, words: list[str], expected: str
) -> None:
    done = several("run", *words, f"touch {tmp_path}/ran")
    assert (done.returncode, expected in done.stderr.decode()) == (2, True)
    assert not (tmp_path / "ran").exists()


def test_a_command_for_one_target_refuses_a_group(several: Cli) -> None:
    done = several("shell", "--on", "group:both")
    assert (done.returncode, b"one is needed here" in done.stderr) == (2, True)


def test_a_pattern_selects_hosts_of_the_ssh_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Include more\nHost web1 web* !web9 db\n  User me\n")
    (tmp_path / ".ssh" / "more").write_text("Host web2\n")
    groups = {"web": ["ssh://web*"], "mine": ["ssh://me@d?"], "none": ["ssh://x*"], "all": ["group:all"]}
    assert expand_groups(["group:web", "local", "group:web"], groups) == ["ssh://web1", "ssh://web2", "local"]
    assert expand_groups(["group:mine"], groups) == ["ssh://me@db"]
    for name, why in (("none", "matches no target"), ("all", "contains itself")):
        with pytest.raises(ConfigError, match=why):
            expand_groups([f"group:{name}"], groups)
