"""With ``--json`` an error is one JSON object on standard error; without it, one line of text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hermes_exec.cli.global_flags import requests_json

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("words", "kind", "code", "said"),
    [
        (["run", "--json", "--on", "nowhere", "true"], "ConfigError", 2, "'nowhere'"),
        (["run", "--json", "--nope", "true"], "UsageError", 2, "--nope"),
        (["run", "--on", "local", "--json", "--timeout", "soon", "true"], "UsageError", 2, "'soon'"),
        (["jobs", "--nope", "--json"], "UsageError", 2, "--nope"),
        (["logs", "--json", "nosuch"], "UsageError", 2, "there is no job 'nosuch'"),
        (["--config", "/none/x", "profile", "list", "--json"], "ConfigError", 2, "/none/x"),
        (["kill", "nosuch", "--json"], "UsageError", 2, "nosuch"),
        (["run", "--json", "--on", "ssh://nobody@127.0.0.1:1", "true"], "PlaceUnavailable", 125, "127.0.0.1"),
        (["policy", "show", "none", "--json"], "ConfigError", 2, "none"),
        (["conversations", "show", "none", "--json"], "UsageError", 2, "none"),
        (["top", "--json", "--on", "nowhere"], "ConfigError", 2, "'nowhere'"),
        (["log", "--json", "--on", "nowhere"], "ConfigError", 2, "'nowhere'"),
        (["log", "--json", "--last", "9" * 30], "UsageError", 2, "too large"),
        (["chat", "-q", "x", "--json"], "NoModel", 2, "provider"),
    ],
)
def test_an_error_is_an_object(cli: Cli, words: list[str], kind: str, code: int, said: str) -> None:
    done = cli(*words)
    assert done.stdout == b""
    error = json.loads(done.stderr)["error"]
    assert (error["type"], error["exit_code"], done.returncode) == (kind, code, code)
    assert said in error["message"]
    assert error["state"] == "nothing ran"
    assert isinstance(error["remedy"], str)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["jobs", "--json"], True),
        (["--quiet", "--config", "x", "jobs", "--on", "x", "--json"], True),
        (["run", "--json", "true"], True),
        (["run", "-o", "x", "--json", "true"], True),
        (["run", "true", "--json"], False),
        (["run", "--", "--json"], False),
        (["run", "--name", "--json", "true"], False),
        (["skill", "run", "x", "--json"], True),
        (["skill", "list", "--json"], True),
        (["cp", "--", "a", "--json"], False),
        ([], False),
    ],
)
def test_it_is_known_before_the_line_is_parsed(words: list[str], expected: bool) -> None:
    assert requests_json(words) is expected


def test_without_it_an_error_is_a_line(cli: Cli) -> None:
    done = cli("run", "--on", "nowhere", "true", "--json")
    assert done.stderr.startswith(b"hermes-exec: no profile")
    assert done.stderr.count(b"\n") == 1
