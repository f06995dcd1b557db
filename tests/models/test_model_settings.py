"""Which models the environment and the user's file mean."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_exec.config.files import parse_file
from hermes_exec.config.load import Overrides, load_settings
from hermes_exec.config.settings import Origin
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec_agent.errors import ContextTooLong, ModelError, NoModel
from hermes_exec_agent.models import Models, ScriptedModel, complete, load_models
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.fallback import Fallback
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import Model, Reply, Retried
from tests.rigs.endpoint import KEY, ScriptedEndpoint, Status

HELLO = (Message("user", "hello"),)
LAB = {"LLM_PROVIDER": "openai", "OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "gpt-x"}


def endpoint(model: Model) -> Endpoint:
    assert isinstance(model, Endpoint)
    return model


def test_three_variables_are_enough() -> None:
    main = endpoint(load_models(LAB).main)
    assert (main.name, main.base_url) == ("gpt-x", "https://api.openai.com/v1")


@pytest.mark.parametrize(
    ("word", "url"),
    [
        ("openrouter", "https://openrouter.ai/api/v1"),
        ("nous", "https://inference-api.nousresearch.com/v1"),
        ("WisGate", "https://api.wisgate.ai/v1"),
        ("vllm", "http://127.0.0.1:8000/v1"),
        ("sglang", "http://127.0.0.1:30000/v1"),
        ("llamacpp", "http://127.0.0.1:8080/v1"),
        ("ollama", "http://127.0.0.1:11434/v1"),
    ],
)
def test_each_provider_has_its_address(word: str, url: str) -> None:
    assert endpoint(load_models({**LAB, "LLM_PROVIDER": word}).main).base_url == url


@pytest.mark.parametrize("word", ["vllm", "sglang", "llama.cpp", "ollama"])
def test_a_server_of_ones_own_needs_no_key(word: str) -> None:
    assert load_models({"LLM_PROVIDER": word, "DEFAULT_MODEL": "m"}).main.name == "m"


def test_another_address_can_be_said() -> None:
    models = load_models({**LAB, "LLM_PROVIDER": "custom", "LLM_BASE_URL": "http://box:9/v1", "LLM_CONTEXT": "9000"})
    assert (endpoint(models.main).base_url, models.main.window) == ("http://box:9/v1", 9000)


def test_the_providers_own_key_comes_before_the_general_one() -> None:
    models = load_models({**LAB, "LLM_PROVIDER": "nous", "NOUS_API_KEY": "nous-key-123456"})
    assert models.redactor.redact("nous-key-123456") == "[secret NOUS_API_KEY]"


def test_the_auxiliary_model_is_the_main_one_unless_it_is_named() -> None:
    alone = load_models(LAB)
    assert alone.auxiliary is alone.main
    assert load_models({**LAB, "AUXILIARY_MODEL": "gpt-small"}).auxiliary.name == "gpt-small"


@pytest.mark.parametrize("lacking", LAB)
def test_what_is_missing_is_told_with_what_was_looked_for(lacking: str) -> None:
    known = {name: value for name, value in LAB.items() if name != lacking}
    if lacking == "LLM_PROVIDER":
        known.pop("OPENAI_API_KEY")  # which alone would mean its provider
    with pytest.raises(NoModel) as caught:
        load_models(known)
    assert isinstance(caught.value, UsageError)  # exit code 2: another attempt does not help
    assert any(line.startswith(lacking) and line.endswith("not set") for line in caught.value.looked_for)
    assert KEY not in str(caught.value) + "".join(caught.value.looked_for)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"LLM_PROVIDER": "opnai"}, "LLM_PROVIDER=opnai"),
        ({"LLM_CONTEXT": "many"}, "LLM_CONTEXT"),
        ({"LLM_PROVIDER": "custom"}, "no address"),
        ({"LLM_BASE_URL": "ftp://x"}, "base URL"),
        ({"LLM_BASE_URL": "https://me:secret@x/v1"}, "base URL"),
        ({"LLM_BASE_URL": "http://x:99999/v1"}, "base URL"),
        ({"LLM_BASE_URL": "http://[::1/v1"}, "base URL"),
        ({"LLM_BASE_URL": "http://a b/v1"}, "base URL"),
    ],
)
def test_what_is_wrong_is_named(more: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        load_models({**LAB, **more})
    assert "secret" not in str(caught.value)


def test_a_file_can_name_models_of_different_providers() -> None:
    tables: dict[str, Any] = {
        "main": {"provider": "openrouter", "model": "big", "key": "env:MINE", "window": 200_000, "fallbacks": ["box"]},
        "box": {"provider": "ollama", "model": "small"},
        "auxiliary": {"provider": "vllm", "model": "middle", "base_url": "http://gpu:8000/v1"},
    }
    models = load_models({"MINE": KEY}, tables)
    assert isinstance(models.main, Fallback)
    assert models.names == ("main", "auxiliary", "box")
    assert (models.main.name, models.main.window, models.get("box").name) == ("big", 200_000, "small")
    assert endpoint(models.auxiliary).base_url == "http://gpu:8000/v1"
    assert models.redactor.redact(KEY) == "[secret main_key]"


@pytest.mark.parametrize(
    "table",
    [7, {"modle": "x"}, {"model": 7}, {"model": "m", "provider": "vllm", "fallbacks": ["nobody"]},
     {"model": "m", "provider": "vllm", "key": KEY}, {"model": "m", "provider": "vllm", "window": 3}],
)  # fmt: skip
def test_a_wrong_table_is_refused_without_repeating_a_key(table: object) -> None:
    with pytest.raises(ConfigError) as caught:
        load_models({}, {"main": table})
    assert KEY not in str(caught.value)


def test_a_wrong_provider_is_told_where_it_stands() -> None:
    with pytest.raises(ConfigError, match=r"^\[models\.main\]: provider nobody: not a provider"):
        load_models({}, {"main": {"model": "m", "provider": "nobody"}})


def test_another_provider_in_the_environment_never_gets_the_files_key() -> None:
    tables = {"main": {"provider": "openrouter", "model": "m", "key": "env:MINE"}}
    with pytest.raises(NoModel):
        load_models({"LLM_PROVIDER": "nous", "MINE": KEY}, tables)


@pytest.mark.parametrize("word", ["", "/", "//", "/chat/completions", "/chat/completions/"])
def test_an_address_is_understood_with_what_people_leave_at_its_end(word: str) -> None:
    models = load_models({**LAB, "LLM_BASE_URL": f"http://box:9/v1{word}"})
    assert endpoint(models.main).base_url == "http://box:9/v1"


def test_a_model_is_chosen_by_its_name() -> None:
    models = Models(ScriptedModel([], name="a"), named={"b": ScriptedModel([], name="b")})
    assert models.with_main("b").main.name == "b"
    assert models.with_main("b").with_main("main").main.name == "a"
    assert models.with_main("b").get("main").name == "b"  # the one that the person left is not asked
    assert models.with_main("b").auxiliary.name == "b"
    with pytest.raises(ConfigError, match="'c'"):
        models.get("c")


def test_reading_settings_imports_no_sdk() -> None:
    lines = (
        "import sys",
        "from hermes_exec_agent.models import load_models",
        "load_models({'LLM_PROVIDER': 'vllm', 'DEFAULT_MODEL': 'm'})",
        "print('openai' in sys.modules)",
    )
    known = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], env=known, capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_a_fallback_answers_when_the_first_cannot() -> None:
    broken = ScriptedModel([ModelError("down"), "back"], name="first")
    second = ScriptedModel(["one", "two"], name="second")
    both = Fallback([broken, second])
    assert asyncio.run(complete(both, HELLO)).model == "second"
    assert asyncio.run(complete(both, HELLO)).message.content == "two"
    assert len(broken.requests) == 1  # it rests


def test_a_model_that_rested_is_asked_again() -> None:
    both = Fallback([ScriptedModel([ModelError("down"), "back"]), ScriptedModel(["stand-in"])], rest_s=0)
    assert [asyncio.run(complete(both, HELLO)).message.content for _ in range(2)] == ["stand-in", "back"]


def test_a_model_that_refuses_tool_choice_is_still_the_first_that_is_asked() -> None:
    async def replies() -> tuple[str, str]:
        first, second = ScriptedModel([ModelError("refused"), "back"]), ScriptedModel(["a last word"])
        both = Fallback([first, second])
        last = [item async for item in both.stream(HELLO, tool_choice="none")][-1]
        assert isinstance(last, Reply)
        assert second.requests[0].tool_choice == "none"
        return last.message.content, (await complete(both, HELLO)).message.content

    assert asyncio.run(replies()) == ("a last word", "back")


def test_the_change_of_the_model_is_told() -> None:
    async def items() -> list[object]:
        both = Fallback([ScriptedModel([ModelError("down")]), ScriptedModel(["x"], name="second")])
        return [item async for item in both.stream(HELLO)]

    first = asyncio.run(items())[0]
    assert isinstance(first, Retried)
    assert (first.reason, first.model) == ("down", "second")


def test_when_none_answers_every_reason_is_told() -> None:
    both = Fallback([ScriptedModel([ModelError("first is down")]), ScriptedModel([ModelError("second is down")])])
    with pytest.raises(ModelError, match="first is down; second is down"):
        asyncio.run(complete(both, HELLO))


def test_too_long_a_conversation_is_not_sent_to_everybody() -> None:
    second = ScriptedModel(["x"])
    with pytest.raises(ContextTooLong):
        asyncio.run(complete(Fallback([ScriptedModel([ContextTooLong("too long")]), second]), HELLO))
    assert not second.requests


def test_fallbacks_of_the_environment_are_of_the_same_provider() -> None:
    with ScriptedEndpoint([Status(404, {"error": {"message": "no such model"}}), "hello"]) as rig:
        known = {**LAB, "LLM_BASE_URL": rig.url, "FALLBACK_MODELS": "other, third"}

        async def whole() -> str:
            models = load_models(known)
            try:
                return (await complete(models.main, HELLO)).message.content
            finally:
                await models.close()

        assert asyncio.run(whole()) == "hello"
        assert [request["model"] for request in rig.requests] == ["gpt-x", "other"]


def test_models_are_read_from_the_users_own_file(tmp_path: Path) -> None:
    file = tmp_path / "hermes.toml"
    file.write_text('[models.main]\nprovider = "ollama"\nmodel = "m"\n')
    settings = load_settings(cwd=tmp_path, environ={"HOME": "/"}, flags=Overrides(config=file))
    assert load_models({}, settings.models).main.name == "m"


def test_a_project_does_not_choose_who_gets_the_key(tmp_path: Path) -> None:
    file = tmp_path / "hermes.toml"
    with pytest.raises(ConfigError, match="belongs in your own file"):
        parse_file(b'[models.main]\nbase_url = "http://evil/v1"\n', file, Origin("project", str(file)))
