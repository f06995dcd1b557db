"""What is shown of texts that others wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hermes_exec_agent.frontends.chat.display import PlainDisplay, describe_update
from hermes_exec_agent.frontends.chat.export import to_markdown
from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line
from hermes_exec_agent.frontends.chat.screen import ScreenDisplay, split_finished
from hermes_exec_agent.frontends.chat.slash_commands import is_command
from hermes_exec_agent.runtime.events.event import Event
from hermes_exec_agent.runtime.updates import Compacted, Retried, Text, Thought, Warned

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events.event import Kind

LINES = st.lists(st.sampled_from(["", "words", "```", "```py", "~~~", "- item", "  ", "# head"])).map("\n".join)


@given(st.text())
def test_nothing_that_is_shown_moves_a_cursor(text: str) -> None:
    assert all(each.isprintable() or each in "\n\t\u200c\u200d" for each in escape_text(text))
    assert to_line(text).isprintable()


def test_printable_text_is_shown_as_it_is() -> None:
    assert escape_text("grüße, 世界 👩‍👩‍👧\n\tend") == "grüße, 世界 👩‍👩‍👧\n\tend"


def test_a_long_line_is_cut_with_a_sign() -> None:
    assert to_line("word " * 50, 20) == "word word word word…"


@pytest.mark.parametrize(("typed", "meant"), [
    ("/help", True), ("/Resume 2026", True), ("/", True), ("/nonsense\n", True),
    ("/etc/passwd was changed", False), (" /help", False), ("/tmp/", False), ("a /help", False), ("//", False),
])  # fmt: skip
def test_a_slash_and_a_word_are_for_the_chat_and_paths_are_not(typed: str, meant: bool) -> None:
    assert is_command(typed) == meant


@pytest.mark.parametrize(
    ("wait_s", "said"), [(2.0, "m: busy; the request is repeated"), (60.0, "m: busy; the request is repeated in 60 s")]
)
def test_a_long_wait_is_told(wait_s: float, said: str) -> None:
    assert describe_update(Retried("m: busy", wait_s, "m")) == said


def test_a_thought_that_is_void_is_not_shown_as_one_that_is_whole(capfd: pytest.CaptureFixture[str]) -> None:
    for display in (ScreenDisplay(Console(width=80)), PlainDisplay()):
        display.show_thoughts(shown=True)
        display.begin(scripted=False)
        for update in (
            Thought("I err\x1b[2J."),
            Retried("m: busy", 0.0, "m"),
            Thought("I look\x1b[2J."),
            Text("Here."),
        ):
            display.update(update)
        display.end()
    shown = "".join(capfd.readouterr())
    assert "I err" not in shown
    assert shown.count("I look\\x1b[2J.") == 2
    assert shown.index("I look") < shown.index("Here.")


def test_lines_that_come_during_a_question_are_shown_after_it(capfd: pytest.CaptureFixture[str]) -> None:
    for display in (ScreenDisplay(Console(width=80)), PlainDisplay()):
        display.begin(scripted=False)
        with display.hold():
            display.print_line("a tool")
            display.update(Warned("budget", "a warning"))
            display.print_beside("a notice")
            assert "a " not in "".join(capfd.readouterr())
        display.end()
        shown = "".join(capfd.readouterr())
        assert shown.index("a tool") < shown.index("warning: a warning") < shown.index("a notice")


def test_a_folded_thought_is_one_line_of_a_narrow_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    display = ScreenDisplay(Console(width=40))
    display.begin(scripted=False)
    display.update(Thought("I consider many things. " * 9))
    display.end()
    (line,) = capfd.readouterr().out.splitlines()
    assert 30 < len(line) <= 40


@given(LINES)
def test_splitting_what_is_said_loses_nothing(said: str) -> None:
    assert "".join(split_finished(said)) == said


@given(LINES, LINES)
def test_what_is_finished_stays_finished_however_it_goes_on(said: str, more: str) -> None:
    done, _ = split_finished(said)
    assert split_finished(said + more)[0].startswith(done)


def test_a_paragraph_ends_at_an_empty_line_but_not_inside_of_code() -> None:
    assert split_finished("one\n\ntwo") == ("one\n\n", "two")
    assert split_finished("```\none\n\ntwo\n") == ("", "```\none\n\ntwo\n")
    assert split_finished("```\none\n```\n\n") == ("```\none\n```\n\n", "")


def test_a_fence_in_a_result_does_not_end_its_block() -> None:
    shown = list(
        to_markdown([Event("c", 1, 0.0, "result", {"content": '{"ok": true, "output": "```\\n# no heading"}'})])
    )
    assert shown[1] == "````text"
    assert shown[-1] == "````"


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ([], "unknown: the agent's program ended while this ran"),
        ([("interrupted", {"by": "end"})], "unknown: the agent's program ended while this ran"),
        ([("interrupted", {"by": "the person"})], "interrupted: it was stopped before its end"),
    ],
    ids=["cut", "cut and gone on with", "interrupted"],
)
def test_a_call_that_was_cut_says_what_is_known_of_it(ended: list[tuple[Kind, dict[str, str]]], said: str) -> None:
    calls = [{"id": "1", "name": "terminal", "arguments": "{}"}, {"id": "2", "name": "terminal", "arguments": "{}"}]
    record: list[tuple[Kind, dict[str, Any]]] = [
        ("assistant", {"content": "", "tool_calls": calls}),
        ("call", {"id": "1", "name": "terminal"}),
        ("result", {"id": "1", "content": '{"ok": true, "output": "done"}'}),
        ("call", {"id": "2", "name": "terminal"}),
        *ended,
    ]
    shown = "\n".join(to_markdown(Event("c", number, 0.0, *each) for number, each in enumerate(record, 1)))
    assert shown.count("unknown: ") + shown.count("interrupted: ") == 1
    assert said in shown.partition("done")[2]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cleared", "old results were removed"),
        ("summarised", "was summarized"),
        ("listed", "no model could summarize the context, so it was cut to a list of actions"),
    ],
)
def test_a_conversation_that_was_shortened_says_how(how: str, said: str) -> None:
    assert said in describe_update(Compacted(900, 300, how))
    assert said in "".join(to_markdown([Event("c", 1, 0.0, "compacted", {"messages": [], "how": how})]))
