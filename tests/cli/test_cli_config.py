"""``config``: the files, each setting with its source, and no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.effective import hide_secrets

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

SECRET = "sk-1234567890abcdef"


def settings(cli: Cli, *words: str, env: dict[str, str] | None = None) -> dict[str, tuple[Any, str]]:
    cli.env.update(env or {})
    return {each["key"]: (each["value"], each["origin"]) for each in cli.json("config", *words, "--json")["settings"]}


def test_a_setting_has_the_source_that_set_it(cli: Cli) -> None:
    path = str(
        cli.configure('default = "box"\n[backends.box]\ntype = "local"\n[log]\nlevel = "info"\nformat = "json"\n')
    )
    found = settings(cli, env={"HERMES_EXEC_LOG": "debug"})
    assert found["log.level"] == ("debug", "HERMES_EXEC_LOG")
    assert found["log.format"] == ("json", path)
    assert found["default"] == ("box", path)
    assert found["backends.box"] == ("local", path)
    assert found["audit.enabled"] == (True, "default")


def test_a_nested_setting_has_its_own_source(cli: Cli) -> None:
    path = str(cli.configure("[agent.guardrails]\ntool_failures = [1, 2]\n"))
    found = settings(cli)
    assert found["agent.guardrails.tool_failures"] == ([1, 2], path)
    assert found["agent.guardrails.same_results"] == ([2, 5], "default")


def test_the_file_of_a_project_counts_once_it_is_trusted(cli: Cli) -> None:
    project = cli.cwd / "hermes.toml"
    project.write_text("[limits]\ntimeout_s = 5.0\n")
    done = cli("config", "--json")
    assert b"is ignored" in done.stderr
    assert b'"state": "ignored"' in done.stdout
    cli("profile", "trust", "--yes")
    assert settings(cli)["limits.timeout_s"] == (5.0, str(project))
    files = cli.json("config", "--json")["files"]
    assert [(each["role"], each["state"]) for each in files] == [("project", "read"), ("user", "not there")]


def test_no_secret_is_shown(cli: Cli) -> None:
    cli.configure(
        f'[models.main]\nprovider = "openai"\nkey = "{SECRET}"\nbase_url = "https://me:{SECRET}@host/v1"\n'
        '[models.other]\nkey = "env:OPENAI_API_KEY"\n[memory]\nhoncho_key = "env:HONCHO"\n'
    )
    done = cli("config")
    assert SECRET.encode() not in done.stdout + done.stderr + cli("config", "--json").stdout
    assert b"environment variable OPENAI_API_KEY" in done.stdout
    assert b"environment variable HONCHO" in done.stdout


@pytest.mark.parametrize(
    "table",
    [
        {"api_key": SECRET},
        {"key": {"literal": SECRET}},
        {"headers": {"Authorization": SECRET}},
        {"keys": [{"token": SECRET}]},
        {"url": f"postgresql://me:{SECRET}@host/db"},
        {"key": ["command", SECRET]},
    ],
)
def test_a_secret_is_hidden_wherever_it_stands(table: dict[str, object]) -> None:
    assert SECRET not in repr(hide_secrets(table))


def test_other_values_stay_as_they_are() -> None:
    table = {"model": "monkey-1", "max_tokens": 100, "stop": ["a"], "on": True, "none": None}
    assert hide_secrets(table) == table


def test_one_key_and_the_keys_below_it_are_selected(cli: Cli) -> None:
    assert set(settings(cli, "log")) == {"log.level", "log.format"}
    assert set(settings(cli, "log.level")) == {"log.level"}
    done = cli("config", "log.lvel")
    assert (done.returncode, done.stderr) == (2, b"hermes-exec: there is no setting 'log.lvel'. Try: log.level\n")


def test_changed_leaves_defaults_out(cli: Cli) -> None:
    cli.configure("[audit]\nkeep = 3\n")
    assert set(settings(cli, "--changed")) == {"audit.keep"}


def test_a_wrong_file_is_reported(cli: Cli) -> None:
    cli.configure("[limits\n")
    done = cli("config")
    assert done.returncode == 2
    assert b"hermes.toml" in done.stderr
