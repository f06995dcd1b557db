"""``hermes-exec serve``: a process of its own, with a real client of models inside and one of ours outside."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest
from openai import AuthenticationError, OpenAI

from hermes_exec_agent.models import ask, say
from tests.http.conftest import TOKEN
from tests.rigs.breadth import thorough
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionUserMessageParam

    from tests.cli.conftest import Child, Cli

Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]
HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def model(cli: Cli, nap: str) -> Generator[ScriptedEndpoint]:
    """A model that asks for a tool, then answers, then waits in a tool."""
    long = ask(("terminal", {"command": f"setsid {nap} & {nap}"}))
    with ScriptedEndpoint([ask(("terminal", {"command": "env"})), say("Looked."), long]) as endpoint:
        cli.env |= {
            "LLM_PROVIDER": "openai",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": endpoint.url,
            "DEFAULT_MODEL": "one",
        }
        yield endpoint


def started(cli: Cli, *words: str) -> tuple[Child, str]:
    """A server, and where it listens."""
    child = cli.start("serve", "--port", "0", "--json", *words)
    return child, json.loads(child.out.readline())["listening"]


@thorough
def test_the_agent_is_served_until_it_is_told_to_end(
    cli: Cli, model: ScriptedEndpoint, running: Running, until: Until, nap: str
) -> None:
    cli.env["HERMES_EXEC_SERVER_TOKEN"] = TOKEN
    child, url = started(cli, "--approve", "allow", "--grace", "0")
    stranger = OpenAI(base_url=url, api_key="another one, which is as long", max_retries=0, timeout=60)
    with stranger, pytest.raises(AuthenticationError):
        stranger.chat.completions.create(model="main", messages=HELLO)
    with OpenAI(base_url=url, api_key=TOKEN, max_retries=0, timeout=60) as here:
        done = here.chat.completions.create(model="main", messages=HELLO)
        assert done.choices[0].message.content == "Looked."
        stream = here.chat.completions.create(model="main", messages=HELLO, stream=True)
        until(lambda: len(running(nap)) >= 2)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        assert not running(nap)
        stream.close()
    assert b"Traceback" not in child.err.read()
    assert not model.complaints
    first = cli.json("conversations", "list", "--json")[-1]["id"]
    said = json.dumps(cli.json("conversations", "show", first, "--json"))
    assert KEY not in said
    assert TOKEN not in said


@thorough
def test_without_a_model_it_says_so_and_is_there(cli: Cli) -> None:
    child, url = started(cli)
    assert url.startswith("http://127.0.0.1:")
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    assert b"the server refuses requests until there is a model" in child.err.read()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--token-from", "env:SHORT"], "shorter than 16 characters"),
        (["--token-from", "hunter2"], "--token-from: a secret's source is"),
        (["--token-from", "file:/no/such/file"], "/no/such/file"),
        (["--approve", "maybe"], "there is no such mode"),
        (["--on", "no-such-place"], "no-such-place"),
        (["--keep", "soon"], "not a duration"),
    ],
)
def test_mistakes_end_it_before_it_listens(cli: Cli, words: list[str], said: str) -> None:
    cli.env["SHORT"] = "too short"
    done = cli("serve", "--port", "0", *words)
    assert done.returncode == 2
    assert said in done.stderr.decode().splitlines()[-1]
    assert b"hunter2" not in done.stderr
    assert b"too short" not in done.stderr
