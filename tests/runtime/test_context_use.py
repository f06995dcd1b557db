"""The parts of a request, in tokens."""

from __future__ import annotations

from hermes_exec_agent.memory.prompt import HEADINGS
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import ToolSpec
from hermes_exec_agent.runtime.compaction import SUMMARY
from hermes_exec_agent.runtime.context_use import measure_context
from hermes_exec_agent.runtime.system_prompt import system_prompt

TOOLS = [ToolSpec("look", "Look." * 100, {})]


def test_each_part_of_the_system_message_is_counted_by_itself() -> None:
    memory = HEADINGS["memory"] + '\n- "' + "m" * 4_000 + '"'
    system = system_prompt("local", "i" * 400, memory, "# AGENTS\n\n" + "p" * 40_000)
    messages = [
        Message("system", system),
        Message("user", SUMMARY + "s" * 800),
        Message("user", "u" * 80),
        Message("assistant", "", (ToolCall("1", "look", "a" * 160),)),
        Message("tool", "r" * 2_000, tool_call_id="1"),
    ]
    use = measure_context(messages, TOOLS, place="local", instructions="i" * 400, window=100_000, scale=1.0)
    parts = dict(use.parts)
    assert 10_000 < parts.pop("project's files") < 10_100
    assert 1_000 < parts.pop("memory") < 1_100
    assert 100 < parts.pop("instructions") < 110
    assert 500 < parts.pop("results of tools") < 510
    assert 200 < parts.pop("summary of earlier parts") < 240
    assert set(parts) == {"system message", "descriptions of tools", "requests and notices", "replies and calls"}


def test_the_estimate_follows_the_count_of_the_endpoint() -> None:
    messages = [Message("system", system_prompt("local")), Message("user", "u" * 80)]
    plain = measure_context(messages, TOOLS, place="local", instructions="", window=1_000, scale=1.0)
    scaled = measure_context(messages, TOOLS, place="local", instructions="", window=1_000, scale=2.0)
    assert scaled.used == 2 * plain.used
    assert plain.share_of(plain.window) == 1


def test_the_system_message_of_an_earlier_version_is_one_part() -> None:
    messages = [Message("system", "You were an agent.")]
    use = measure_context(messages, (), place="local", instructions="", window=1_000, scale=1.0)
    assert list(use.parts) == ["system message", "descriptions of tools"]
