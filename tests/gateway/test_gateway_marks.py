"""Rendering for Discord and Signal: all words arrive, nothing in a text becomes a mark, and marks end."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec_agent.frontends.gateway.marks import to_discord, to_signal
from hermes_exec_agent.frontends.gateway.questions import quote_code
from hermes_exec_agent.frontends.gateway.rendering import to_plain
from tests.rigs.breadth import IN_FULL, WHOLE
from tests.rigs.discord_api import Markup
from tests.rigs.signal_api import read_styled

EXAMPLES = 5000 if IN_FULL else 300 if WHOLE else 100
MARKS = st.text("ab *_`~#>-[]()<@&\n|!1.\\:", max_size=120)
TEXTS = st.one_of(MARKS, st.text(max_size=80))
PROSE = st.lists(
    st.sampled_from([
        "word", "other.", "\n\n", "\n", "```\n", "```py\n", "`x`", "- item\n", "**", "*", "~~", "> ", "# ", "_",
        "[word](https://h/a_b)", "https://h/_word_", "<@12>", "||",
    ]),
    max_size=40,
)  # fmt: skip


def read_signal(text: str) -> str:
    """Return what a person reads; a style without an end is an error."""
    shown, styles = read_styled(text)
    assert not any(style.startswith("open") for style, _ in styles)
    return shown


def flatten(text: str) -> str:
    """Return the characters that a person reads, without what separates lines and marks."""
    return re.sub(r"[\s\u2060\x02\x1d\x1e>]", "", text)


@given(text=TEXTS)
@settings(max_examples=EXAMPLES)
def test_both_forms_have_only_marks_of_ours(text: str) -> None:
    Markup().parse(to_discord(text))
    read_signal(to_signal(text))


@given(parts=PROSE)
@settings(max_examples=EXAMPLES)
def test_both_forms_keep_every_word(parts: list[str]) -> None:
    text = " ".join(parts)
    words = re.findall(r"word|other|item", text)
    assert re.findall(r"word|other|item", Markup().parse(to_discord(text))) == words
    assert re.findall(r"word|other|item", read_signal(to_signal(text))) == words


@given(text=st.text("ab*_`~#-[]()<@\n|!1.\\ ", max_size=60).map(quote_code))
@settings(max_examples=EXAMPLES)
def test_a_code_block_shows_what_it_has(text: str) -> None:
    shown = flatten(to_plain(text))
    assert flatten(Markup().parse(to_discord(text))) == shown
    assert flatten(read_signal(to_signal(text))) == shown


@given(
    text=MARKS.map(lambda text: re.sub(r"([^a-z0-9\s])", r"\\\1", text).replace("\n", " ").replace("  ", " ").strip())
)
@settings(max_examples=EXAMPLES)
def test_escaped_text_is_shown_character_by_character(text: str) -> None:
    plain = re.sub(r"\\([^a-z0-9\s])", r"\1", text)
    if not plain.strip():
        return
    assert Markup().parse(to_discord(f"x {text}")) == f"x {plain}"
    shown, styles = read_styled(to_signal(f"x {text}"))
    assert (shown.replace("\u2060", ""), [style for style, _ in styles if style != "`"]) == (f"x {plain}", [])


@pytest.mark.parametrize(
    ("text", "discord", "signal"),
    [
        ("**bold** and *it*", "**bold** and _it_", "**bold** and *it*"),
        ("***x** y*", "_**x** y_", "*\u2060**x** y*"),
        ("a*b*c", "a\u2060_b_\u2060c", "a*b*c"),
        ("# **Head**\n\ntext", "**Head**\n\ntext", "**Head**\n\ntext"),
        ("> one\n> two\n\nend", "> one\n> two\n\nend", "> one\n> two\n\nend"),
        ("```sh\nls ```` x\n```", "```sh\nls `\u2060`\u2060`\u2060` x\n```", "`ls \\`\\`\\`\\` x`"),
        ("[x](https://h/)", "[x](<https://h/>)", "x (https://h/)"),
        ("<https://h/a_b>", "<https://h/a_b>", "https://h/a_b"),
        ("**see https://h/a_b**", "**see <https://h/a_b>**", "**see https://h/a_b**"),
        ("[x](/relative)", "x (/relative)", "x (/relative)"),
        ("[x](javascript:y)", "\\[x\\](javascript:y)", "[x](javascript:y)"),
        ("<@1> @everyone <#2>", "\\<\\@1\\> \\@everyone \\<\\#2\\>", "<@1> @everyone <#2>"),
        ("- a\n  1. b", "• a\n  1\\. b", "• a\n  1. b"),
        ("\\\\**b**", "\\\\**b**", "\\\u2060**b**"),
        ("``a`b``", "`` a`b ``", "`a\\`b`"),
        ("[ERROR]: x", "\\[ERROR\\]: x", "[ERROR]: x"),
        ("#", "\\#", "#"),
    ],
)
def test_forms(text: str, discord: str, signal: str) -> None:
    assert (to_discord(text), to_signal(text)) == (discord, signal)


def test_control_characters_of_an_address_are_no_codes() -> None:
    for render in (to_discord, to_signal):
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", render("<https://h/%02%11%12> &#2; \x13quote\x14"))
