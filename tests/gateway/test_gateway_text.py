"""Cutting and rendering of answers: nothing is lost, pieces fit, and no text becomes markup."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec_agent.frontends.gateway.commands import classify
from hermes_exec_agent.frontends.gateway.cutting import cut_lines, cut_markdown, find_open_fence
from hermes_exec_agent.frontends.gateway.mrkdwn import to_marks, to_mrkdwn
from hermes_exec_agent.frontends.gateway.questions import quote_code
from hermes_exec_agent.frontends.gateway.rendering import to_html, to_plain
from tests.rigs.breadth import IN_FULL, WHOLE
from tests.rigs.slack_api import read_mrkdwn
from tests.rigs.telegram_api import Markup

EXAMPLES = 5000 if IN_FULL else 300 if WHOLE else 100
WORDS = st.text("ab *_`~#>-[]()<&\n|!1.\\", max_size=120)
PROSE = st.lists(st.sampled_from(["word", "other.", "\n\n", "\n", "```\n", "```py\n", "`x`", "- item\n"]), max_size=60)


@given(text=st.one_of(WORDS, st.text(max_size=80)))
@settings(max_examples=EXAMPLES)
def test_html_is_what_the_api_takes(text: str) -> None:
    Markup().parse(to_html(text))


@given(text=st.one_of(WORDS, st.text(max_size=80), st.text("<@!>|&;#[](https://)\n `*>", max_size=80)))
@settings(max_examples=EXAMPLES)
def test_mrkdwn_is_what_slack_takes_and_notifies_nobody(text: str) -> None:
    shown, pings = read_mrkdwn(to_mrkdwn(text))
    assert not pings
    assert shown.strip() or not text.strip() or not to_plain(text).strip()


@given(text=st.text("@<!>channelhreyo ", max_size=40))
@settings(max_examples=EXAMPLES // 5)
def test_names_of_groups_notify_nobody_even_where_names_are_parsed(text: str) -> None:
    for each in (text, f"@channel {text}", f"`@here` {text}", f"{text}\n```\n@everyone\n```"):
        assert not read_mrkdwn(to_mrkdwn(each), "full")[1]


@given(code=st.text("`a <>&\n", min_size=1, max_size=40))
@settings(max_examples=EXAMPLES // 5)
def test_code_cannot_end_its_block(code: str) -> None:
    for rendered in (to_mrkdwn(quote_code(f"a{code}a")), to_marks(quote_code(f"a{code}a"))):
        assert rendered.count("```") == 2
        assert rendered.startswith("```\n")
        assert rendered.endswith("\n```")
    for rendered in (
        to_mrkdwn(quote_code(f"a{code}a", is_inline=True)),
        to_marks(quote_code(f"a{code}a", is_inline=True)),
    ):
        assert rendered.count("`") == 2


@given(parts=PROSE)
@settings(max_examples=EXAMPLES)
def test_all_forms_keep_every_word(parts: list[str]) -> None:
    text = " ".join(parts)
    words = re.findall(r"word|other|item", text)
    assert re.findall(r"word|other|item", read_mrkdwn(to_mrkdwn(text))[0]) == words
    assert re.findall(r"word|other|item", to_marks(text)) == words
    assert re.findall(r"word|other|item", Markup().parse(to_html(text))) == words
    assert re.findall(r"word|other|item", to_plain(text)) == words


@given(text=st.one_of(WORDS, st.text(max_size=80)))
@settings(max_examples=EXAMPLES)
def test_plain_text_has_no_codes_but_those_of_marks(text: str) -> None:
    assert not re.search(r"[\x00\x01\x03-\x08\x0b-\x1c\x1f\x7f]", to_plain(text))


@given(parts=PROSE)
@settings(max_examples=EXAMPLES)
def test_pieces_fit_and_have_every_word_in_order(parts: list[str]) -> None:
    text = " ".join(parts)
    pieces = cut_markdown(text, lambda piece: len(piece) <= 60)
    assert all(len(piece) <= 60 for piece in pieces)
    words = [each for each in re.findall(r"[\w.]+", text) if each != "py"]
    assert [each for each in re.findall(r"[\w.]+", " ".join(pieces)) if each != "py"] == words


@given(parts=PROSE)
@settings(max_examples=EXAMPLES)
def test_each_piece_closes_its_code_blocks(parts: list[str]) -> None:
    text = "".join(parts)
    pieces = cut_markdown(text, lambda piece: len(piece) <= 60)
    assert all(not find_open_fence(piece) for piece in pieces[:-1])


def test_a_text_is_cut_at_paragraphs_first() -> None:
    assert cut_markdown("one two\n\nthree\nfour", lambda piece: len(piece) <= 12) == ["one two", "three\nfour"]


def test_a_code_block_is_opened_again_with_its_language() -> None:
    pieces = cut_markdown("```py\naaaa\nbbbb\ncccc\n```", lambda piece: len(piece) <= 20)
    assert pieces == ["```py\naaaa\nbbbb\n```", "```py\ncccc\n```"]


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_a_code_block_with_a_long_language_is_cut_and_keeps_it_as_code(fence: str) -> None:
    text = f"{fence}{'x' * 500}\n{'code ' * 40}\n{fence}\nend"
    pieces = cut_markdown(text, lambda piece: len(piece) <= 100)
    assert all(len(piece) <= 100 for piece in pieces)
    assert "".join(pieces).count("x") == 500
    assert "".join(pieces).count("code") == 40
    assert pieces[-1].endswith("end")


def test_a_fence_that_leaves_no_room_for_code_is_not_cut_again_and_again() -> None:
    assert cut_markdown("```\na", lambda piece: len(piece) <= 1) == ["```\na"]


@given(text=st.text("`~a \n", max_size=120), longest=st.integers(1, 50))
@settings(max_examples=EXAMPLES)
def test_cutting_ends_whatever_the_text_and_the_limit(text: str, longest: int) -> None:
    pieces = cut_markdown(text, lambda piece: len(piece) <= longest)
    assert "".join(pieces).count("a") >= text.count("a")


@given(text=st.text(max_size=300))
def test_lines_fit_in_bytes(text: str) -> None:
    lines = cut_lines(text, 40)
    assert all(0 < len(line.encode("utf-8", "surrogatepass")) <= 40 and "\n" not in line for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(text=st.text("`a \n", max_size=40))
def test_quoted_text_is_code_whatever_it_is(text: str) -> None:
    html = to_html(quote_code(text.strip() or "x"))
    assert html.startswith("<pre>")
    assert html.endswith("</pre>")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**bold** and *it*", "<b>bold</b> and <i>it</i>"),
        ("`a < b`", "<code>a &lt; b</code>"),
        ("[x](https://h/)", '<a href="https://h/">x</a>'),
        ("[x](/relative)", "x (/relative)"),
        ("# Head\n\ntext", "<b>Head</b>\n\ntext"),
        ("- a\n- b\n  1. c", "• a\n• b\n  1. c"),
        ("> said", "<blockquote>said\n\n</blockquote>"),
        ("```sh\nls\n```", '<pre><code class="language-sh">ls</code></pre>'),
        ("<b>no</b>", "&lt;b&gt;no&lt;/b&gt;"),
    ],
)
def test_html_of_telegram(text: str, html: str) -> None:
    assert to_html(text) == html


@pytest.mark.parametrize(
    ("text", "slack", "whatsapp"),
    [
        ("**b** *i* ~~s~~", "*b* _i_ ~s~", "*b* _i_ ~s~"),
        ("# A **b**\n\nc", "*A b*\n\nc", "*A b*\n\nc"),
        ("<!channel> & x", "&lt;!channel&gt; &amp; x", "<!channel> & x"),
        ("@channel me@here.org", "@\u200bchannel me@here.org", "@channel me@here.org"),
        ("[x](https://h/?a&b)", "<https://h/?a&amp;b|x>", "x (https://h/?a&b)"),
        ("[a\nb](https://h/)", "<https://h/|a b>", "a\nb (https://h/)"),
        ("[![i](https://j/)](https://h/)", "<https://h/|i>", "i (https://j/) (https://h/)"),
        ("[x](javascript:y)", "[x](javascript:y)", "[x](javascript:y)"),
        ("<https://h/>", "<https://h/|https://h/>", "https://h/"),
        ("> a\n> b\n\nc", "> a\n> b\n\nc", "> a\n> b\n\nc"),
        ("- a\n- b", "• a\n• b", "• a\n• b"),
        ("```sh\na`b <x>\n```", "```\na`b &lt;x&gt;\n```", "```\na`b <x>\n```"),
        ("``a`b``", "`a\u02cbb`", "`a\u02cbb`"),
        ("a_b_c", "a_b_c", "a_b_c"),
    ],
)
def test_marks_of_slack_and_whatsapp(text: str, slack: str, whatsapp: str) -> None:
    assert (to_mrkdwn(text), to_marks(text)) == (slack, whatsapp)


@pytest.mark.parametrize("text", ["[ERROR]: segfault", "[a]: b\n[c]: d", "```\n```", "#", ">", "&nbsp;", "![](/)"])
def test_markdown_that_would_show_nothing_is_shown_as_it_was_written(text: str) -> None:
    if text != "![](/)":
        assert Markup().parse(to_html(text)).strip() == text.strip()
        assert to_plain(text).strip() == text.strip()
    assert Markup().parse(to_html(text)).strip()
    assert to_plain(text).strip()


@pytest.mark.parametrize(
    ("text", "kind"),
    [("/new", "ordered"), ("/NEW now", "ordered"), ("/stop", "immediate"), ("/frob", "immediate"),
     ("/etc/passwd is world-readable", "request"), ("new", "request"), ("", "request"), ("/ x", "request")],
)  # fmt: skip
def test_texts_are_commands_or_requests(text: str, kind: str) -> None:
    assert classify(text) == kind
