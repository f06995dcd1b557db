"""Cutting and rendering of answers: nothing is lost, pieces fit, and no text becomes markup."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec_agent.frontends.gateway.commands import classify
from hermes_exec_agent.frontends.gateway.cutting import cut_lines, cut_markdown, find_open_fence
from hermes_exec_agent.frontends.gateway.questions import quote_code
from hermes_exec_agent.frontends.gateway.rendering import to_html, to_plain
from tests.rigs.breadth import WHOLE
from tests.rigs.telegram_api import Markup

EXAMPLES = 5000 if WHOLE else 300
WORDS = st.text("ab *_`~#>-[]()<&\n|!1.\\", max_size=120)
PROSE = st.lists(st.sampled_from(["word", "other.", "\n\n", "\n", "```\n", "```py\n", "`x`", "- item\n"]), max_size=60)


@given(text=st.one_of(WORDS, st.text(max_size=80)))
@settings(max_examples=EXAMPLES)
def test_html_is_what_the_api_takes(text: str) -> None:
    Markup().parse(to_html(text))


@given(parts=PROSE)
@settings(max_examples=EXAMPLES)
def test_both_forms_keep_every_word(parts: list[str]) -> None:
    text = " ".join(parts)
    words = re.findall(r"word|other|item", text)
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
    ("text", "kind"),
    [("/new", "ordered"), ("/NEW now", "ordered"), ("/stop", "immediate"), ("/frob", "immediate"),
     ("/etc/passwd is world-readable", "request"), ("new", "request"), ("", "request"), ("/ x", "request")],
)  # fmt: skip
def test_texts_are_commands_or_requests(text: str, kind: str) -> None:
    assert classify(text) == kind
