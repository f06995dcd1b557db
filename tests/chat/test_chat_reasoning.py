"""What a chat does with a model's reasoning: dimmed, folded, out of answers, and found only on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_exec_agent.models import ask
from tests.rigs.endpoint import KEY, ScriptedEndpoint
from tests.rigs.strict import DeepSeek

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.cli.screen import Screen

Chat = Callable[..., "Screen"]
PROMPT = "you> "
THOUGHT = "grüße, I look first"


def use(cli: Cli, rig: ScriptedEndpoint) -> None:
    """Ask the rig."""
    cli.env |= {
        "LLM_PROVIDER": "deepseek", "LLM_BASE_URL": rig.url, "OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }  # fmt: skip


def test_thoughts_are_dimmed_and_folded_until_the_person_wants_to_see_them(cli: Cli, chat: Chat) -> None:
    calls = ask(("terminal", {"command": "echo seen"}))
    with ScriptedEndpoint([calls, "First.", "Second.", "Third."], strict=DeepSeek()) as rig:
        use(cli, rig)
        here = chat("--approve", "allow")
        here.see(PROMPT)
        here.type("look\r")
        here.see(r"\x1b\[2m▸ thought 0 s: deepseek-thought-1: " + THOUGHT + r"  \(/reasoning show\)")
        here.see("echo seen")
        here.see(r"\x1b\[2m▸ thought 0 s: deepseek-thought-2")
        here.see("First.")
        here.see(PROMPT)
        here.type("/reasoning show\r")
        here.see("shown in full")
        here.type("again\r")
        here.see(r"\x1b\[2m▸ thought 0 s\x1b\[0m\r\n\x1b\[2mdeepseek-thought-3: " + THOUGHT)
        here.see("Second.")
        here.see(PROMPT)
        here.type("/reasoning high\r")
        here.see("m: effort high")
        here.type("/reasoning much\r")
        here.see("/reasoning much: not an effort. Try: minimal, low, medium, high, xhigh, max, on, off, show or hide")
        here.type("/reasoning hide\r")
        here.see("folded")
        here.type("and again\r")
        here.see("Third.")
        here.see(PROMPT)
        here.type("/usage\r")
        here.see("wrote 36, of which 16 for thinking")
        here.type("/search --in thoughts look first\r")
        here.see("deepseek-thought-")
        here.type("/search grüße\r")
        here.see("nothing there has these words")
    assert not rig.complaints
    assert [body.get("reasoning_effort") for body in rig.requests] == [None, None, None, "high"]


def test_thoughts_are_no_part_of_an_answer_and_found_only_on_demand(cli: Cli) -> None:
    with ScriptedEndpoint(["First.", "Second."], strict=DeepSeek()) as rig:
        use(cli, rig)
        plain = cli("chat", "-q", "hello")
        told = cli.json("chat", "-q", "hello", "--json")
    assert (plain.stdout, plain.stderr) == (b"First.\n", b"")
    assert (told["text"], told["usage"]["reasoning"]) == ("Second.", 4)
    assert THOUGHT not in json.dumps(told, ensure_ascii=False)
    for form in ("markdown", "messages"):
        assert THOUGHT not in cli("conversations", "export", "last", "--format", form).stdout.decode()
    assert cli.json("conversations", "search", "grüße", "--json") == []
    found = cli.json("conversations", "search", "grüße", "--in", "thoughts", "--json")
    assert [THOUGHT in each["snippet"] for each in found] == [True, True]
