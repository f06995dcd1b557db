"""A turn that is stopped ends with words: the model's, or else the program's list of what happened."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal

import pytest

from hermes_exec_agent.models import ask, load_models, say
from hermes_exec_agent.runtime import Text
from hermes_exec_agent.tools.shell import TerminalTool
from hermes_exec_agent.tools.tool import Approvals
from tests.rigs.endpoint import KEY, ScriptedEndpoint, Streamed

if TYPE_CHECKING:
    from hermes_exec_agent.runtime import Answer, Conversation, Update
    from tests.rigs.endpoint import Written
    from tests.runtime.conftest import Talk

CALLS = [
    ask(("terminal", {"command": "exec sleep 1000", "background": True})),
    ask(("terminal", {"command": "echo one"})),
    ask(("terminal", {"command": "exit 3"}), text="One more."),
]
NEXT = say("The next answer.")
"""The reply to the request after the turn that was stopped."""


def turns(talk: Talk, rig: ScriptedEndpoint, **options: Any) -> tuple[list[Answer], str]:
    """A turn that is stopped and one more; the answers, and the text that was shown."""
    told: list[Update] = []

    async def held(conversation: Conversation) -> list[Answer]:
        try:
            return [await conversation.ask(each, told.append) for each in ("do much", "and now?")]
        finally:
            for started in await conversation.terminal.jobs():
                await (await conversation.terminal.job(started.id)).kill()

    async def whole() -> list[Answer]:
        environ = {"LLM_PROVIDER": "custom", "LLM_BASE_URL": rig.url, "OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m"}
        models = load_models(environ)
        try:
            async with talk(
                models.main, [TerminalTool()], models=models, approvals=Approvals("allow"), **options
            ) as conversation:
                return await held(conversation)
        finally:
            await models.close()

    return asyncio.run(whole()), "".join(update.text for update in told if isinstance(update, Text))


@pytest.mark.parametrize("habit", ["obeyed", "ignored", "refused"])
def test_a_spent_budget_ends_with_the_model_or_with_the_list(
    talk: Talk, habit: Literal["obeyed", "ignored", "refused"]
) -> None:
    endings: dict[str, list[Written]] = {
        "obeyed": [ask(("terminal", {"command": "echo more"}), text="I ran two."), NEXT],
        "ignored": [ask(("terminal", {"command": "echo more"}), text="And more:"), NEXT],
        "refused": [NEXT, NEXT],  # a refused request takes an answer of the script, too
    }
    with ScriptedEndpoint([*CALLS, *endings[habit]], tool_choice=habit) as rig:
        (stopped, after), shown = turns(talk, rig, budget=3)
    assert [request.get("tool_choice") for request in rig.requests] == [None, None, None, "none", None]
    assert rig.requests[3]["tools"] == rig.requests[2]["tools"]
    assert not rig.complaints
    assert (stopped.outcome, stopped.calls, after.text) == ("budget", 3, NEXT.message.content)
    if habit == "obeyed":
        assert stopped.text == "I ran two."
        return
    assert ("more" in stopped.text) == (habit == "ignored")  # what was asked for last is listed, and did not run
    assert "echo more" not in json.dumps([each for each in rig.requests[4]["messages"] if each["role"] == "tool"])
    why = "went on calling tools" if habit == "ignored" else "could not be asked (m: it answered 400: m does not sup"
    assert f"as the model {why}" in stopped.text
    for lines in (
        "\n\nAsked: do much\n",
        "\n\nDone:\n\n- terminal  exec sleep 1000\n- terminal  echo one\n",
        "\n\nFailed:\n\n- terminal  exit 3: exit code 3\n",
        "\n\nLeft running:\n\n- ",
    ):
        assert lines in stopped.text
    assert stopped.text.endswith(": exec sleep 1000")
    words = stopped.text.partition("This list is")[2]
    assert words in shown
    assert words in rig.requests[4]["messages"][-2]["content"]  # the model reads what the person read


@pytest.mark.parametrize("text", ['<tool_call>{"name": "terminal", "arguments": {}}</tool_call>', " "])
def test_a_last_word_that_is_none_is_followed_by_the_list(talk: Talk, text: str) -> None:
    silent = 2 if not text.strip() else 0
    with ScriptedEndpoint([CALLS[1], *[say(text)] * (1 + silent), NEXT]) as rig:
        (stopped, _), shown = turns(talk, rig, budget=1)
    assert "- terminal  echo one\n" in stopped.text
    assert "- terminal  echo one\n" in shown
    assert not rig.complaints


@pytest.mark.parametrize(
    ("finish", "outcome"), [("stop", "empty"), ("length", "length"), ("content_filter", "filtered")]
)
def test_a_model_that_falls_silent_after_calls_leaves_a_list(talk: Talk, finish: str, outcome: str) -> None:
    with ScriptedEndpoint([CALLS[1], *[Streamed(say(""), finish=finish)] * 3, NEXT]) as rig:
        (stopped, after), shown = turns(talk, rig)
    assert (stopped.outcome, after.outcome) == (outcome, "answered")
    assert "- terminal  echo one\n" in stopped.text
    assert stopped.text in shown
    assert not rig.complaints
