"""Markdown with the marks of Slack and of WhatsApp."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.gateway.rendering import ADDRESSES, HtmlRenderer, clean, create_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

_MARKS = {"strong": "*", "em": "_", "s": "~"}
_QUOTE = re.compile(r"\x0e([^\x0e\x0f]*)\x0f")
"""A block quote; no other text has these characters, because `clean` drops them."""
_LINK = re.compile(r"<([^<>|]*)\|([^<>]*)>")
_UNSEEN = re.compile(r"<[^<>|]*\||[*_~`<>\s\u200b]")
_PING = re.compile(r"(?<!\w)@(?=(?:channel|here|everyone)\b)", re.IGNORECASE)
_APART = "\u200b"
"""A space without width, between characters that would be markup together."""


def to_mrkdwn(text: str) -> str:
    """Return Markdown in the form of Slack, where nothing of the text notifies anyone; see `rendering.to_html`."""
    source = clean(text)
    rendered = _Mrkdwn().render(create_parser().parse(source))
    return rendered if _UNSEEN.sub("", rendered) else _Mrkdwn().escape(source)


def to_marks(text: str) -> str:
    """Return Markdown with the marks of WhatsApp; see `rendering.to_html`."""
    source = clean(text)
    rendered = _Marks().render(create_parser().parse(source))
    return rendered if _UNSEEN.sub("", rendered) else source


class _Marks(HtmlRenderer):
    """Renders tokens for WhatsApp."""

    def __init__(self) -> None:
        super().__init__()
        self._depths: dict[str, int] = {}
        """How many marks of each kind are open; only the outermost is written."""

    def render(self, tokens: Sequence[Token]) -> str:
        """Return the text of tokens, with a sign before each line of a quote."""
        text, count = super().render(tokens), 1
        while count:
            text, count = _QUOTE.subn(_sign_quote, text)
        return text.strip("\n")

    def escape(self, text: str) -> str:
        """Return text that begins and ends no code block; other marks cannot be escaped on these platforms."""
        return re.sub(r"`(?=`)", f"`{_APART}", text)

    def code(self, text: str) -> str:
        """Return code within a line; a backtick in it becomes another sign, because it would end the code."""
        return f"`{self.escape(text.replace('`', chr(0x2CB)))}`"

    def block(self, text: str, language: str) -> str:  # noqa: ARG002  the shape of the base class
        """Return a code block, which nothing in it can end."""
        return f"```\n{self.escape(text)}\n```"

    def mark(self, name: str, *, opens: bool) -> str:
        """Return the sign that begins and ends bold text and the like."""
        if name == "blockquote":
            return "\x0e" if opens else "\x0f"
        depth = self._depths[name] = self._depths.get(name, 0) + (1 if opens else -1)
        return _MARKS.get(name, "") if depth == (1 if opens else 0) else ""

    def link(self, text: str, address: str) -> str:
        """Return a link with its address."""
        return f"{text} ({address})" if text and text != address else address

    def link_side(self, token: Token, *, opens: bool) -> str:
        """Return the end of a link with its address, unless that is its text."""
        if opens:
            self._address = "" if token.info == "auto" else str(token.attrGet("href") or "")
            return ""
        return f" ({self._address})" if self._address else ""


class _Mrkdwn(_Marks):
    """Renders tokens for Slack."""

    def render(self, tokens: Sequence[Token]) -> str:
        """Return the text of tokens; a link has its text in one line, or only an address."""
        return _LINK.sub(_flatten_link, super().render(tokens))

    def escape(self, text: str) -> str:
        """Return text in which nothing is a link or a mention."""
        return html.escape(_PING.sub(f"@{_APART}", super().escape(text)), quote=False)

    def link(self, text: str, address: str) -> str:
        """Return a link; within another link only its text, because links cannot be nested."""
        if self._address:
            return text
        if not address.startswith(ADDRESSES):
            return f"{text} ({self.escape(address)})" if address else text
        return f"<{_encode(address)}|{text}>"

    def link_side(self, token: Token, *, opens: bool) -> str:
        """Return the beginning or the end of a link."""
        if opens:
            self._address = str(token.attrGet("href") or "")
            return f"<{_encode(self._address)}|" if self._address.startswith(ADDRESSES) else ""
        address, self._address = self._address, ""
        return ">" if address.startswith(ADDRESSES) else f" ({self.escape(address)})"


def _sign_quote(found: re.Match[str]) -> str:
    return "\n".join(f"> {line}" for line in found[1].strip("\n").split("\n"))


def _flatten_link(found: re.Match[str]) -> str:
    text = " ".join(found[2].split())
    return f"<{found[1]}|{text}>" if text else f"<{found[1]}>"


def _encode(address: str) -> str:
    """Return an address that cannot end the link that it is in."""
    for sign in "<>|":
        address = address.replace(sign, f"%{ord(sign):02X}")
    return html.escape("".join(address.split()), quote=False)
