"""``profile`` and what the configuration does to commands: trust, secrets, places with a name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

PROJECT = '[backends.box]\ntype = "local"\ndescription = "ours"\nenv = { FROM = "the project" }\n'
SECRET = "hunter2-and-more"
TOKEN = {"MY_TOKEN": SECRET}
WITH_SECRET = '[backends.here]\ntype = "local"\n[backends.here.secrets]\nTOKEN = "env:MY_TOKEN"\n'


@pytest.fixture
def project(cli: Cli) -> Path:
    (cli.cwd / ".git").mkdir()
    path = cli.cwd / "hermes.toml"
    path.write_text(PROJECT)
    return path


def test_a_project_is_ignored_until_it_is_trusted(cli: Cli, project: Path) -> None:
    before = cli("run", "--on", "box", "echo $FROM")
    assert before.returncode == 2
    trusting = f"hermes-exec profile trust {project}"
    assert trusting.encode() in before.stderr
    assert cli("profile", "trust").returncode == 0
    after = cli("run", "--on", "box", "echo $FROM")
    assert (after.stdout, after.stderr) == (b"the project\n", b"")


def test_one_changed_byte_ends_the_trust(cli: Cli, project: Path) -> None:
    cli("profile", "trust", str(project))
    project.write_text(PROJECT + "\n")
    done = cli("run", "--on", "box", "true")
    assert done.returncode == 2
    assert b"changed since it was trusted" in done.stderr


def test_trust_can_be_taken_back(cli: Cli, project: Path) -> None:
    cli("profile", "trust")
    assert cli("profile", "distrust").returncode == 0
    assert cli("run", "--on", "box", "true").returncode == 2
    assert b"was not trusted" in cli("profile", "distrust").stderr


def test_an_ignored_project_is_a_warning_that_quiet_leaves_out(cli: Cli, project: Path) -> None:
    assert str(project).encode() in cli("run", "true").stderr
    assert cli("--quiet", "run", "true").stderr == b""
    said = cli("chat", "--replay", "demo", "-q", "hello").stderr  # it plans the target, and then opens it
    assert said.count(b"is ignored: not trusted") == 1


def test_init_writes_a_file_once(cli: Cli) -> None:
    first = cli("profile", "init")
    path = Path(first.stdout.decode().strip())
    assert path.read_text().startswith("#")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# mine\n")
    assert cli("profile", "init").returncode == 2
    assert path.read_text() == "# mine\n"


def test_list_tells_where_each_comes_from(cli: Cli, project: Path) -> None:
    mine = cli.configure('default = "mine"\n[backends.mine]\ntype = "local"\ndescription = "of my own"\n')
    cli("profile", "trust")
    told = cli.json("profile", "list", "--json")
    assert told["default"] == "mine"
    assert {row["name"]: row["from"] for row in told["profiles"]} == {
        "local": "built-in",
        "box": str(project),
        "mine": str(mine),
    }


def test_list_is_columns_on_a_pipe(cli: Cli) -> None:
    lines = cli("profile", "list").stdout.decode().splitlines()
    assert lines[0].split() == ["NAME", "TYPE", "FROM", "TARGET", "ABOUT"]
    assert lines[1].split() == ["*", "local", "local", "built-in", "local"]


def test_a_wrong_profile_is_listed_with_what_is_wrong(cli: Cli) -> None:
    cli.configure('[backends.bad]\ntype = "local"\nlogn = true\n')
    assert b"logn" in cli("profile", "list").stdout


def test_check_tells_everything_that_is_wrong(cli: Cli) -> None:
    cli.configure('[backends.a]\ntype = "local"\nlogn = true\n[backends.b]\ntyp = "x"\n')
    done = cli("profile", "check")
    assert done.returncode == 1
    assert [b"logn" in line or b"'type' is missing" in line for line in done.stderr.splitlines()] == [
        True,
        True,
    ]
    assert cli("profile", "check", "--json").returncode == 1


def test_a_file_of_an_editor_of_windows_is_read(cli: Cli) -> None:
    cli.configure('\ufeff[backends.a]\r\ntype = "local"\r\n')
    assert cli("profile", "check").returncode == 0


def test_check_is_content_when_nothing_is_wrong(cli: Cli) -> None:
    cli.configure('[backends.a]\ntype = "local"\n')
    assert cli("profile", "check").returncode == 0
    assert cli.json("profile", "check", "--json")["problems"] == []


def test_check_is_not_content_with_a_file_that_it_could_not_check(cli: Cli, project: Path) -> None:
    done = cli("profile", "check")
    assert done.returncode == 1
    assert b"is ignored: not trusted. Try: read it, then hermes-exec profile trust" in done.stderr
    assert b"no problems" not in done.stderr
    assert done.stderr.count(b"is ignored") == 1
    cli("profile", "trust")
    assert cli("profile", "check").returncode == 0
    assert str(project).encode() in cli("profile", "check").stderr


def test_show_tells_values_and_where_secrets_are_found(cli: Cli) -> None:
    cli.configure(WITH_SECRET)
    told = cli.json("profile", "show", "here", "--json")
    assert told["chain"][0]["secrets"] == {"TOKEN": "environment variable MY_TOKEN"}
    shown = cli("profile", "show", "here", env=TOKEN).stdout
    assert b"environment variable MY_TOKEN" in shown
    assert SECRET.encode() not in shown


def test_secrets_reach_the_command_and_are_hidden_in_its_output(cli: Cli) -> None:
    cli.configure(WITH_SECRET)
    done = cli("run", "--on", "here", "echo =$TOKEN=; echo ${#TOKEN}; echo $TOKEN >&2", env=TOKEN)
    assert done.stdout == b"=[secret TOKEN]=\n16\n"
    assert done.stderr == b"[secret TOKEN]\n"


def test_a_secret_that_comes_in_pieces_is_hidden_too(cli: Cli) -> None:
    cli.configure(WITH_SECRET)
    text = "printf %s hunter2-; sleep 0.05; printf '%s\\n' and-more"
    assert cli("run", "--on", "here", text, env=TOKEN).stdout == b"[secret TOKEN]\n"


def test_what_only_begins_like_a_secret_is_not_held_back_for_long(cli: Cli) -> None:
    cli.configure(WITH_SECRET)
    cli.env["MY_TOKEN"] = SECRET
    child = cli.start("run", "--on", "here", "printf hun; read line", stdin=subprocess.PIPE)
    assert os.read(child.out.fileno(), 100) == b"hun"


def test_secrets_are_shown_when_that_is_asked_for(cli: Cli) -> None:
    cli.configure(WITH_SECRET)
    done = cli("run", "--on", "here", "--no-redact", "echo $TOKEN", env=TOKEN)
    assert done.stdout.decode() == f"{SECRET}\n"


def test_secrets_are_hidden_in_json_in_errors_and_in_the_log(cli: Cli) -> None:
    cli.configure(WITH_SECRET)
    told = json.loads(cli("run", "--on", "here", "--json", "echo $TOKEN", env=TOKEN).stdout)
    assert told["stdout"] == "[secret TOKEN]\n"
    wrong = cli("--debug", "run", "--on", "here", "-C", f"/{SECRET}", "true", env=TOKEN)
    assert b"/[secret TOKEN]" in wrong.stderr
    assert SECRET.encode() not in wrong.stderr
    cli("run", "--on", "here", f"echo {SECRET}", env=TOKEN)
    assert SECRET.encode() not in cli("log", "--json").stdout


@pytest.mark.parametrize(("place", "dumpable"), [("here", 0), ("local", 1)])
def test_no_other_process_reads_our_memory_once_secrets_are_known(cli: Cli, place: str, dumpable: int) -> None:
    cli.configure(WITH_SECRET)
    code = (
        "import ctypes, sys\n"
        "from hermes_exec.cli.open_target import plan_target\n"
        "plan_target(sys.argv[1])\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"  # PR_GET_DUMPABLE
    )
    argv = [sys.executable, "-I", "-c", code, place]
    done = subprocess.run(argv, check=True, capture_output=True, env=cli.env | TOKEN)
    assert int(done.stdout) == dumpable


def test_a_missing_secret_is_told_and_nothing_runs(cli: Cli, tmp_path: Path) -> None:
    cli.configure(WITH_SECRET)
    done = cli("run", "--on", "here", f"touch {tmp_path}/ran")
    assert done.returncode == 2
    assert b"MY_TOKEN" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_flag_is_stronger_than_a_variable_and_that_than_a_file(cli: Cli, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"{number}.toml").write_text(f'[backends.here]\ntype = "local"\nenv = {{ N = "{number}" }}\n')
    cli.configure((tmp_path / "1.toml").read_text())
    words = ["run", "--on", "here", "echo $N"]
    assert cli(*words).stdout == b"1\n"
    named = {"HERMES_EXEC_CONFIG": str(tmp_path / "2.toml")}
    assert cli(*words, env=named).stdout == b"2\n"
    assert cli("--config", str(tmp_path / "3.toml"), *words, env=named).stdout == b"3\n"


def test_the_audit_can_be_turned_off_for_once(cli: Cli) -> None:
    cli("--no-audit", "run", "true")
    assert cli.json("log", "--json") == []
