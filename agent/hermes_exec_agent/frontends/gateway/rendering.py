"""Markdown in the forms of platforms: HTML for Telegram, lines for IRC, and marks for Slack and WhatsApp."""

from __future__ import annotations

import html
import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_HTML = {"strong": "b", "em": "i", "s": "s", "blockquote": "blockquote"}
_IRC = {"strong": "\x02", "em": "\x1d", "s": "\x1e"}
_TAG = re.compile(r"<[^>]*>")
_CODES = re.compile(r"[\x02\x1d\x1e]")
_ADDRESSES = ("http://", "https://")
_MARKS = {"strong": "*", "em": "_", "s": "~"}
_QUOTE = re.compile(r"\x0e([^\x0e\x0f]*)\x0f")
"""A block quote; no other text has these characters, because `_clean` drops them."""
_LINK = re.compile(r"<([^<>|]*)\|([^<>]*)>")
_UNSEEN = re.compile(r"<[^<>|]*\||[*_~`<>\s\u200b]")
_PING = re.compile(r"(?<!\w)@(?=(?:channel|here|everyone)\b)", re.IGNORECASE)
_APART = "\u200b"
"""A space without width, between characters that would be markup together."""


def to_html(text: str) -> str:
    """Return Markdown as HTML with the few tags that Telegram takes; everything else is text.

    Markdown that would show nothing is shown as it was written.
    """
    source = _clean(text)
    rendered = _Html().render(_parser().parse(source))
    return rendered if html.unescape(_TAG.sub("", rendered)).strip() else html.escape(source, quote=False)


def to_plain(text: str) -> str:
    """Return Markdown as the lines of IRC, with its codes for bold and italic text; see `to_html`."""
    source = _clean(text)
    rendered = _Plain().render(_parser().parse(source))
    return rendered if _CODES.sub("", rendered).strip() else source


def to_mrkdwn(text: str) -> str:
    """Return Markdown in the form of Slack, where nothing of the text notifies anyone; see `to_html`."""
    source = _clean(text)
    rendered = _Mrkdwn().render(_parser().parse(source))
    return rendered if _UNSEEN.sub("", rendered) else _Mrkdwn().escape(source)


def to_marks(text: str) -> str:
    """Return Markdown with the marks of WhatsApp; see `to_html`."""
    source = _clean(text)
    rendered = _Marks().render(_parser().parse(source))
    return rendered if _UNSEEN.sub("", rendered) else source


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # the rule "reference" hides lines such as [ERROR]: text
    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").disable("reference")


def _clean(text: str) -> str:
    """Drop control characters, which codes of IRC and terminals begin with."""
    return "".join(each if each in "\n\t" or (each >= " " and each != "\x7f") else " " for each in text)


class _Html:
    """Renders tokens for Telegram."""

    def __init__(self) -> None:
        self._lists: list[int | None] = []
        """The next number of each open list; None for bullets."""
        self._address = ""
        """The address of the open link."""

    def render(self, tokens: Sequence[Token]) -> str:
        """Return the text of tokens."""
        return "".join(self._token(each) for each in tokens).strip("\n")

    def _token(self, token: Token) -> str:
        kind = token.type
        if kind == "inline":
            return "".join(self._token(each) for each in token.children or ())
        if kind.endswith(("_open", "_close")):
            return self._frame(token)
        match kind:
            case "text" | "html_inline" | "html_block":
                return self.escape(token.content)
            case "softbreak" | "hardbreak":
                return f"\n{self._indent()}"
            case "code_inline":
                return self.code(token.content)
            case "fence" | "code_block":
                return f"{self.block(token.content.rstrip(chr(10)), (token.info.split() or [''])[0])}\n\n"
            case "image":
                return self.link(self.escape(token.content), str(token.attrGet("src") or ""))
            case "hr":
                return "———\n\n"
            case _:
                return self.escape(token.content)

    def _frame(self, token: Token) -> str:
        """Return the beginning or the end of a paragraph, a list, a heading or a mark."""
        name, _, side = token.type.rpartition("_")
        opens = side == "open"
        match name:
            case "bullet_list" | "ordered_list":
                return self._list(token, opens=opens)
            case "list_item":
                return self._bullet() if opens else ""
            case "paragraph":
                return "" if opens else "\n" if self._lists else "\n\n"
            case "heading":
                return self.mark("strong", opens=True) if opens else f"{self.mark('strong', opens=False)}\n\n"
            case "link":
                return self.link_side(token, opens=opens)
            case "blockquote":
                return self.mark(name, opens=opens) + ("" if opens else "\n\n")
            case _:
                return self.mark(name, opens=opens)

    def _list(self, token: Token, *, opens: bool) -> str:
        if not opens:
            self._lists.pop()
            return "" if self._lists else "\n"
        self._lists.append(int(token.attrGet("start") or 1) if token.type.startswith("ordered") else None)
        return ""

    def _bullet(self) -> str:
        number = self._lists[-1]
        if number is not None:
            self._lists[-1] = number + 1
        return f"{'  ' * (len(self._lists) - 1)}{'•' if number is None else f'{number}.'} "

    def _indent(self) -> str:
        return "  " * len(self._lists)

    def escape(self, text: str) -> str:
        """Return text in which nothing is markup."""
        return html.escape(text, quote=False)

    def code(self, text: str) -> str:
        """Return code within a line."""
        return f"<code>{self.escape(text)}</code>"

    def block(self, text: str, language: str) -> str:
        """Return a code block."""
        if language.isascii() and language.replace("-", "").replace("+", "").isalnum():
            return f'<pre><code class="language-{language}">{self.escape(text)}</code></pre>'
        return f"<pre>{self.escape(text)}</pre>"

    def mark(self, name: str, *, opens: bool) -> str:
        """Return the beginning or the end of bold text and the like."""
        tag = _HTML.get(name)
        return "" if tag is None else f"<{'' if opens else '/'}{tag}>"

    def link(self, text: str, address: str) -> str:
        """Return a link."""
        if not address.startswith(_ADDRESSES):
            return f"{text} ({self.escape(address)})" if address else text
        return f'<a href="{html.escape(address)}">{text or self.escape(address)}</a>'

    def link_side(self, token: Token, *, opens: bool) -> str:
        """Return the beginning or the end of a link."""
        if opens:
            self._address = str(token.attrGet("href") or "")
            return f'<a href="{html.escape(self._address)}">' if self._address.startswith(_ADDRESSES) else ""
        return "</a>" if self._address.startswith(_ADDRESSES) else f" ({self.escape(self._address)})"


class _Plain(_Html):
    """Renders tokens for IRC."""

    def escape(self, text: str) -> str:
        """Return the text."""
        return text

    def code(self, text: str) -> str:
        """Return code within a line, between backticks."""
        return f"`{text}`"

    def block(self, text: str, language: str) -> str:  # noqa: ARG002  the shape of the base class
        """Return a code block, indented."""
        return "\n".join(f"    {line}" for line in text.split("\n"))

    def mark(self, name: str, *, opens: bool) -> str:
        """Return the code that switches bold text and the like on or off."""
        return ("> " if opens else "") if name == "blockquote" else _IRC.get(name, "")

    def link(self, text: str, address: str) -> str:
        """Return a link with its address."""
        return f"{text} ({address})" if text and text != address else address

    def link_side(self, token: Token, *, opens: bool) -> str:
        """Return the end of a link with its address."""
        if opens:
            self._address = str(token.attrGet("href") or "")
            return ""
        return f" ({self._address})"


class _Marks(_Html):
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
        if not address.startswith(_ADDRESSES):
            return f"{text} ({self.escape(address)})" if address else text
        return f"<{_encode(address)}|{text}>"

    def link_side(self, token: Token, *, opens: bool) -> str:
        """Return the beginning or the end of a link."""
        if opens:
            self._address = str(token.attrGet("href") or "")
            return f"<{_encode(self._address)}|" if self._address.startswith(_ADDRESSES) else ""
        address, self._address = self._address, ""
        return ">" if address.startswith(_ADDRESSES) else f" ({self.escape(address)})"


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
