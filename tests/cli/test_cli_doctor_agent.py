"""``doctor`` for the agent: its endpoint over real HTTP, and its parts on this machine, with what mends each."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.doctor import examine_agent
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.skills.registry.home import default_home
from tests.rigs.endpoint import KEY, ScriptedEndpoint, Status
from tests.rigs.vendors import KEY as VENDOR_KEY
from tests.rigs.vendors import Said, Vendor

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.backend import Check
    from tests.cli.conftest import Cli

HERE = ("LLM_PROVIDER", "LLM_BASE_URL", "OPENAI_BASE_URL", "DEFAULT_MODEL", "OPENAI_API_KEY", "MEMORY_DB_URL")
CALL = ask(("ready", {"answer": "yes"}))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A person without any settings, whose folders are a test's own."""
    for name in HERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return monkeypatch


def settings(environment: pytest.MonkeyPatch, url: str, *, model: str = "good", key: str = KEY) -> None:
    environment.setenv("LLM_PROVIDER", "custom")
    environment.setenv("LLM_BASE_URL", url)
    environment.setenv("DEFAULT_MODEL", model)
    if key:
        environment.setenv("OPENAI_API_KEY", key)


def rows(*, question: bool = False) -> dict[str, Check]:
    found = asyncio.run(examine_agent(ask=question))
    for each in found:
        assert each.status == "ok" or each.remedy, each
        assert KEY not in f"{each}", each
        assert "\n" not in f"{each.detail}{each.remedy}"
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


def test_an_endpoint_in_order_is_reached_accepts_the_key_and_has_the_model(environment: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint([CALL], models=["other", "good"], key=KEY) as endpoint:
        settings(environment, endpoint.url)
        found = rows()
        assert [found[name].status for name in ("endpoint", "key", "model", "tool call")] == ["ok"] * 3 + ["warning"]
        assert sorted(endpoint.listed) == ["", f"Bearer {KEY}"]
        assert endpoint.requests == []  # nothing that is paid for
        asked = rows(question=True)["tool call"]
        assert (asked.status, len(endpoint.requests)) == ("ok", 1)
        assert "107 tokens" in asked.detail


def test_a_key_that_is_refused_or_not_set_is_named_by_its_variable(environment: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint([], models=["good"], key="another key") as endpoint:
        settings(environment, endpoint.url)
        found = rows(question=True)
        assert found["endpoint"].status == "ok"
        assert (found["key"].status, found["key"].detail) == ("missing", "the key in OPENAI_API_KEY is refused (401)")
        assert found["tool call"].status == "missing"
        environment.delenv("OPENAI_API_KEY")
        found = rows()
        assert (found["key"].status, found["key"].remedy) == ("missing", "set the right key in OPENAI_API_KEY")


def test_a_list_that_is_open_to_all_says_nothing_about_the_key(environment: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint([], models=["good"]) as endpoint:
        settings(environment, endpoint.url)
        found = rows()
        assert (found["key"].status, found["key"].remedy) == ("warning", "hermes-exec doctor --model")
        environment.delenv("OPENAI_API_KEY")
        assert rows()["key"].status == "ok"


def test_a_model_that_is_not_there_is_told_with_the_nearest_one(environment: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint([], models=["good-2", "bad"]) as endpoint:
        settings(environment, endpoint.url, model="good-1")
        found = rows()["model"]
    assert (found.status, found.remedy) == ("missing", "set DEFAULT_MODEL to good-2")


@pytest.mark.parametrize(
    ("answer", "name", "status", "says"),
    [
        (Status(404, {"error": "no such route"}), "model", "warning", "lists no models (404)"),
        (Status(200, b"<html>hello</html>"), "model", "warning", "does not send a list"),
        (Status(503, {"error": f"down, {KEY}"}), "endpoint", "warning", "answers 503"),
    ],
)
def test_another_answer_than_a_list_is_told(
    environment: pytest.MonkeyPatch, answer: Status, name: str, status: str, says: str
) -> None:
    with ScriptedEndpoint([], models=answer) as endpoint:
        settings(environment, endpoint.url)
        found = rows()
    assert (found[name].status, says in found[name].detail) == (status, True), found
    assert "key" not in found


def test_an_endpoint_that_refuses_connections_is_told_with_its_address_alone(environment: pytest.MonkeyPatch) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        settings(environment, f"{url}/v1/s3cret-path")
        found = rows()["endpoint"]
    assert found.status == "missing"
    assert found.detail.startswith(f"{url} cannot be reached: ")
    assert "s3cret" not in found.detail


@pytest.mark.parametrize("answer", [say("yes"), Status(500, {}), ask(("ready", {"reply": 1}))])
def test_a_model_without_a_good_call_is_asked_once_and_told(environment: pytest.MonkeyPatch, answer: Any) -> None:
    with ScriptedEndpoint([answer], models=["good"], forever=True) as endpoint:
        settings(environment, endpoint.url, key="")
        assert rows(question=True)["tool call"].status == "missing"
        assert len(endpoint.requests) == 1


def test_each_model_of_the_settings_has_its_rows(environment: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint([], models=["good", "small"], key=KEY) as endpoint:
        settings(environment, endpoint.url)
        environment.setenv("AUXILIARY_MODEL", "small")
        environment.setenv("FALLBACK_MODELS", "gone")
        found = rows()
    assert found["model"].status == found["model of auxiliary"].status == "ok"
    assert found["model of fallback-1"].status == "missing"


def test_without_a_model_the_other_parts_are_looked_at_and_nothing_is_made(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    found = rows()
    assert (found["model"].status, "LLM_PROVIDER" in found["model"].remedy) == ("warning", True)
    assert {"extras", "gate's sandbox", "registry", "log", "memory"} <= set(found)
    assert list(tmp_path.iterdir()) == []
    environment.setenv("MEMORY_DB_URL", f"postgresql://hermes:{KEY}@127.0.0.1:1/hermes")
    assert (rows()["memory"].status, list(tmp_path.iterdir())) == ("missing", [])
    assert rows(question=True)["model"].status == "missing"


def test_a_log_and_a_registry_that_cannot_be_used_are_told(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    with EventLog.of_user() as log:
        log.append("1", "user", {"content": "hello"})
        path = log.path
    assert rows()["log"].detail.startswith("the file is")
    path.write_bytes(b"no database")
    home = default_home()
    home.folder.mkdir(mode=0o755, parents=True)
    home.folder.chmod(0o755)
    found = rows()
    assert (found["log"].status, found["registry"].status) == ("missing", "missing")
    assert "chmod 700" in found["registry"].remedy
    assert sorted(each.name for each in home.folder.iterdir()) == []
    assert tmp_path.exists()


def test_the_command_shows_the_rows_and_asks_only_when_told_to(cli: Cli) -> None:
    with ScriptedEndpoint([CALL, say("no tool")], models=["good"], key=KEY) as endpoint:
        cli.env |= {
            "LLM_PROVIDER": "custom", "LLM_BASE_URL": endpoint.url, "DEFAULT_MODEL": "good", "OPENAI_API_KEY": KEY,
        }  # fmt: skip
        plain = cli("doctor", "--all")
        assert (plain.returncode, endpoint.requests) == (0, [])
        assert KEY.encode() not in plain.stdout + plain.stderr
        assert b"the key in OPENAI_API_KEY is accepted" in plain.stdout
        asked = json.loads(cli("doctor", "--model", "--json").stdout)
        (agent,) = [kind for kind in asked if kind["type"] == "agent"]
        assert {check["name"]: check["status"] for check in agent["checks"]}["tool call"] == "ok"
        assert cli("doctor", "--model").returncode == 1
        assert len(endpoint.requests) == 2
    assert cli("doctor", "local", "--model").returncode == 2


def test_a_vendors_own_api_is_checked_by_a_question_alone(environment: pytest.MonkeyPatch) -> None:
    async def examine(question: bool) -> tuple[dict[str, Check], int]:
        async with Vendor("anthropic", [Said(calls=[("ready", {"answer": "yes"})])]) as vendor:
            settings(environment, vendor.url, model="claude-opus-4-1", key=VENDOR_KEY)
            environment.setenv("LLM_PROVIDER", "anthropic")
            checks = await examine_agent(ask=question)
            return {each.name: each for each in checks}, len(vendor.requests)

    found, requests = asyncio.run(examine(question=False))
    assert (found["endpoint"].status, found["tool call"].status, requests) == ("warning", "warning", 0)
    found, requests = asyncio.run(examine(question=True))
    assert (found["tool call"].status, requests) == ("ok", 1)
