"""``-v`` tells what happens, ``-vv`` each command too, on standard error and without secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def test_nothing_is_told_unasked(cli: Cli) -> None:
    assert cli("run", "echo hi").stderr == b""


@thorough
def test_it_tells_what_is_opened_how_and_that_it_is_closed(cli: Cli) -> None:
    done = cli("-v", "run", "echo hi")
    assert done.stdout == b"hi\n"
    told = done.stderr.decode()
    assert "hermes_exec.place: opened target=local carrier=guest interpreter=/" in told
    assert "lease_s=900" in told
    assert "hermes_exec.place: closed target=local" in told
    assert "echo" not in told


def test_run_takes_it_too(cli: Cli) -> None:
    told = cli("run", "-v", "echo hi").stderr
    assert b"opened" in told
    assert b"echo hi" not in told
    assert b'command="echo hi"' in cli("run", "-vv", "--", "echo hi").stderr


def test_it_tells_why_a_place_has_no_guest(cli: Cli) -> None:
    cli.configure('[backends.bare]\ntype = "local"\npython = "/no/such/python"\n')
    told = cli("-v", "run", "--on", "bare", "echo hi").stderr.decode()
    assert "no guest by /no/such/python: cannot start" in told
    assert "opened target=bare carrier=plain" in told


def test_twice_it_tells_each_command_without_secrets(cli: Cli) -> None:
    cli.configure('[backends.shy]\ntype = "local"\nsecrets = ["TOKEN_OF_TEST"]\n')
    done = cli("-vv", "run", "--on", "shy", "true sesame2000", env={"TOKEN_OF_TEST": "sesame2000"})
    told = done.stderr.decode()
    assert 'command="true [secret TOKEN_OF_TEST]"' in told
    assert 'ended target=shy how="exit code 0"' in told
    assert "sesame2000" not in told


def test_as_json_each_line_is_an_object(cli: Cli) -> None:
    lines = cli("-v", "--log-format", "json", "run", "echo hi").stderr.splitlines()
    assert {"opening", "opened", "closed"} <= {json.loads(line)["message"] for line in lines}


def test_a_variable_asks_for_it_too(cli: Cli) -> None:
    assert b"opened" in cli("run", "echo hi", env={"HERMES_EXEC_LOG": "info"}).stderr


def test_a_file_asks_for_it_too(cli: Cli) -> None:
    cli.configure('[log]\nlevel = "info"\n')
    assert b"opened" in cli("run", "echo hi").stderr


def test_jobs_are_told_with_their_lease(cli: Cli) -> None:
    done = cli("-v", "run", "--detach", "true")
    told = done.stderr.decode()
    assert f"job {done.stdout.decode().strip()} started target=local lease_s=86400" in told
    assert "the guest stays" in told
