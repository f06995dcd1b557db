"""Markdown in the forms of platforms: the HTML that Telegram knows, the plain lines of IRC, and text with codes.

The codes are control characters that no text has; ``marks`` writes the marks of Discord and Signal for them.
"""

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
BOLD, ITALIC, STRIKE = _IRC.values()
CODE, BLOCK = "\x11", "\x12"
"""The code on both sides of code within a line, and of a code block, whose first line is its language."""
QUOTE, QUOTE_END = "\x13", "\x14"
LINK, ADDRESS, LINK_END = "\x15", "\x16", "\x17"
"""The codes before, between and after the text and the address of a link."""
_TAG = re.compile(r"<[^>]*>")
_CODES = re.compile(r"[\x02\x1d\x1e]")
_ANY_CODE = re.compile(r"[\x02\x11-\x17\x1d\x1e]")
ADDRESSES = ("http://", "https://")


def to_html(text: str) -> str:
    """Return Markdown as HTML with the few tags that Telegram takes; everything else is text.

    Markdown that would show nothing is shown as it was written.
    """
    source = clean(text)
    rendered = HtmlRenderer().render(create_parser().parse(source))
    return rendered if html.unescape(_TAG.sub("", rendered)).strip() else html.escape(source, quote=False)


def to_plain(text: str) -> str:
    """Return Markdown as the lines of IRC, with its codes for bold and italic text; see `to_html`."""
    source = clean(text)
    rendered = _Plain().render(create_parser().parse(source))
    return rendered if _CODES.sub("", rendered).strip() else source


def to_codes(text: str) -> str:
    """Return Markdown as text with codes on both sides of bold text and the like; see `to_html`."""
    source = clean(text)
    rendered = _Codes().render(create_parser().parse(source))
    return rendered if _ANY_CODE.sub("", rendered).strip() else source


@cache
def create_parser() -> MarkdownIt:
    """Return the parser of Markdown, which all renderers share."""
    from markdown_it import MarkdownIt

    # the rule "reference" hides lines such as [ERROR]: text
    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").disable("reference")


def clean(text: str) -> str:
    """Drop control characters, which codes of IRC and terminals begin with."""
    return "".join(each if each in "\n\t" or (each >= " " and each != "\x7f") else " " for each in text)


class HtmlRenderer:
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
        if not address.startswith(ADDRESSES):
            return f"{text} ({self.escape(address)})" if address else text
        return f'<a href="{html.escape(address)}">{text or self.escape(address)}</a>'

    def link_side(self, token: Token, *, opens: bool) -> str:
        """Return the beginning or the end of a link."""
        if opens:
            self._address = str(token.attrGet("href") or "")
            return f'<a href="{html.escape(self._address)}">' if self._address.startswith(ADDRESSES) else ""
        return "</a>" if self._address.startswith(ADDRESSES) else f" ({self.escape(self._address)})"


class _Plain(HtmlRenderer):
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


class _Codes(_Plain):
    """Renders tokens as text with codes."""

    def __init__(self) -> None:
        super().__init__()
        self._depths: dict[str, int] = {}
        """How many marks of each kind are open; only the outermost has codes."""

    def escape(self, text: str) -> str:
        """Return the text. Addresses that are shown as text may have control characters again."""
        return clean(text)

    def code(self, text: str) -> str:
        """Return code within a line."""
        return f"{CODE}{clean(text)}{CODE}"

    def block(self, text: str, language: str) -> str:
        """Return a code block."""
        is_word = language.isascii() and language.replace("-", "").replace("+", "").isalnum()
        return f"{BLOCK}{language if is_word else ''}\n{clean(text)}{BLOCK}"

    def mark(self, name: str, *, opens: bool) -> str:
        """Return the code that begins or ends bold text and the like."""
        depth = self._depths.get(name, 0)
        self._depths[name] = depth + (1 if opens else -1)
        if depth != (0 if opens else 1):
            return ""
        return (QUOTE if opens else QUOTE_END) if name == "blockquote" else _IRC.get(name, "")

    def link(self, text: str, address: str) -> str:
        """Return a link."""
        if not address.startswith(ADDRESSES):
            return super().link(text, clean(address))
        return f"{LINK}{text}{ADDRESS}{clean(address)}{LINK_END}"

    def link_side(self, token: Token, *, opens: bool) -> str:
        """Return the beginning or the end of a link; an address that is its own text has neither."""
        if opens:
            self._address = "" if token.markup == "autolink" else clean(str(token.attrGet("href") or ""))
        if not self._address.startswith(ADDRESSES):
            return "" if opens or not self._address else f" ({self._address})"
        return LINK if opens else f"{ADDRESS}{self._address}{LINK_END}"
