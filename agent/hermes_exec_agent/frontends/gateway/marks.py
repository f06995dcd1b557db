"""The marks of Discord and of Signal's styled text. Nothing in a text becomes a mark that was none in its Markdown."""

from __future__ import annotations

import re

from hermes_exec_agent.frontends.gateway.rendering import (
    ADDRESS,
    BLOCK,
    BOLD,
    CODE,
    ITALIC,
    LINK,
    LINK_END,
    QUOTE,
    QUOTE_END,
    STRIKE,
    to_codes,
)

_PARTS = re.compile(
    rf"{BLOCK}([^{BLOCK}]*){BLOCK}|{CODE}([^{CODE}]*){CODE}|{ADDRESS}([^{LINK_END}]*){LINK_END}"
    rf"|[{BOLD}{ITALIC}{STRIKE}{QUOTE}{QUOTE_END}{LINK}\n]|[^{BOLD}{ITALIC}{STRIKE}{BLOCK}-{LINK_END}{CODE}\n]+"
)
_QUOTE_ENDS = re.compile(rf"\n+{QUOTE_END}")
_JOINER = "\u2060"
"""A character that is not shown. It separates marks, and backticks of a code block."""
_ADDRESS = re.compile(r"https?://[^\s<>]+[^<>.,:;\"'\]\s]")
"""An address in a text. Between angle brackets, Discord reads no marks in it and shows no preview."""
_SPECIAL = re.compile(r"[\\*_~`|<>\[\]#@]")
_LIST = re.compile(r"( *)(?:(-)|(\d+)\.)")
"""What would begin an item of a list at the beginning of a line."""


def to_discord(text: str) -> str:
    """Return Markdown in the form of Discord."""
    return _Discord().write(to_codes(text))


def to_signal(text: str) -> str:
    """Return Markdown as the styled text of signal-cli-rest-api."""
    return _Signal().write(to_codes(text))


class _Writer:
    """Writes text with codes in one form."""

    MARKS: dict[str, str]

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.is_line_start = True
        self._is_quote = False
        self._last_mark = ""
        """The mark that was written last, if nothing follows it."""
        self._link = 0
        """The first part of the open link."""

    def write(self, coded: str) -> str:
        """Return text with codes in this form."""
        for part in _PARTS.finditer(_QUOTE_ENDS.sub(QUOTE_END, coded)):
            block, code, address = part.groups()
            if block is not None:
                language, _, content = block.partition("\n")
                self.put_block(content, language)
            elif code is not None:
                self.put_code(code)
            elif address is not None:
                text = "".join(self.parts[self._link :])
                del self.parts[self._link :]
                self.put(self.format_link(text, address))
            else:
                self._put_part(part[0])
        return "".join(self.parts)

    def _put_part(self, part: str) -> None:
        if part == "\n":
            self.put_line_break()
        elif part == LINK:
            self._link = len(self.parts)
        elif part in (QUOTE, QUOTE_END):
            self._is_quote = part == QUOTE
            if self._is_quote and self.is_line_start:
                self.parts.append("> ")
        elif part in self.MARKS:
            self.put_mark(self.MARKS[part])
        else:
            self.put(self.escape(part))

    def put(self, text: str) -> None:
        """Write a text that is in this form already."""
        self.parts.append(text)
        self.is_line_start, self._last_mark = False, ""

    def put_line_break(self) -> None:
        """Write a line break, and the beginning of the next line of a quotation."""
        self.put("\n> " if self._is_quote else "\n")
        self.is_line_start = True

    def put_lines(self, text: str) -> None:
        """Write lines that are in this form already."""
        first, *rest = text.split("\n")
        self.put(first)
        for line in rest:
            self.put_line_break()
            self.put(line)

    def put_mark(self, mark: str) -> None:
        """Write a mark, apart from what would change its meaning."""
        if self.joins(mark):
            self.parts.append(_JOINER)
        self.put(mark)
        self._last_mark = mark

    def joins(self, mark: str) -> bool:
        """Whether a mark would be read together with what is before it."""
        return self._last_mark[:1] == mark[:1]

    def escape(self, text: str) -> str:
        """Return a text in which nothing is a mark."""
        raise NotImplementedError

    def put_code(self, text: str) -> None:
        """Write code within a line."""
        raise NotImplementedError

    def put_block(self, text: str, language: str) -> None:
        """Write a code block."""
        raise NotImplementedError

    def format_link(self, text: str, address: str) -> str:
        """Return a link; ``text`` is in this form already."""
        raise NotImplementedError


class _Discord(_Writer):
    """Discord reads a backslash before a mark, but for code and addresses."""

    MARKS = {BOLD: "**", ITALIC: "_", STRIKE: "~~"}  # noqa: RUF012  nothing changes it

    def __init__(self) -> None:
        super().__init__()
        self._is_italic = False
        self._was_italic = False
        """Whether the last mark ended italic text, which a letter or digit would continue."""

    def put(self, text: str) -> None:
        """Write a text; Discord ends italic text only where a word ends."""
        if self._was_italic and (text[:1].isalnum() or text[:1] == "_"):
            self.parts.append(_JOINER)
        self._was_italic = False
        super().put(text)

    def put_mark(self, mark: str) -> None:
        """Write a mark; the ends of italic text are at the ends of words."""
        super().put_mark(mark)
        if mark == "_":
            self._is_italic = not self._is_italic
            self._was_italic = not self._is_italic

    def joins(self, mark: str) -> bool:
        """Whether a mark would be read together with what is before it."""
        last = self.parts[-1][-1:] if self.parts else ""
        return super().joins(mark) or (mark == "_" and not self._is_italic and (last.isalnum() or last == "_"))

    def escape(self, text: str) -> str:
        """Return a text in which nothing is a mark, a mention or an item of a list."""
        begin = ""
        if self.is_line_start and (found := _LIST.match(text)) is not None:
            indent, dash, number = found.groups()
            begin, text = f"{indent}\\-" if dash else f"{indent}{number}\\.", text[found.end() :]
        parts: list[str] = []
        end = 0
        for address in _ADDRESS.finditer(text):
            parts += [_SPECIAL.sub(r"\\\g<0>", text[end : address.start()]), f"<{address[0]}>"]
            end = address.end()
        return begin + "".join(parts) + _SPECIAL.sub(r"\\\g<0>", text[end:])

    def put_code(self, text: str) -> None:
        """Write code within a line; as text, if two backticks in it would end it."""
        if "``" in text or not text.strip():
            self.put(self.escape(text))
            return
        self.put_mark(f"`` {text} ``" if "`" in text else f"`{text}`")

    def put_block(self, text: str, language: str) -> None:
        """Write a code block, in which three backticks do not end it."""
        content = re.sub("`{3,}", lambda found: _JOINER.join(found[0]), text)
        self.put_lines(f"```{language}\n{content}\n```" if content.strip() else self.escape(content))

    def format_link(self, text: str, address: str) -> str:
        """Return a link without a preview."""
        return f"[{text}](<{address}>)" if text.strip() else f"<{address}>"


class _Signal(_Writer):
    """The daemon reads one backslash before a mark, and marks also within code."""

    MARKS = {BOLD: "**", ITALIC: "*", STRIKE: "~"}  # noqa: RUF012  nothing changes it

    def joins(self, mark: str) -> bool:
        """Whether a mark would be read together with what is before it."""
        last = self.parts[-1][-1:] if self.parts else ""
        return last == "\\" or (last == "*" and mark[0] == "*") or super().joins(mark)

    def escape(self, text: str) -> str:
        """Return a text in which nothing is a mark."""
        return re.sub(r"[*`~|]", r"\\\g<0>", text)

    def put_code(self, text: str) -> None:
        """Write code within a line."""
        self.put_mark("`")
        self.put(self.escape(text))
        self.put_mark("`")

    def put_block(self, text: str, language: str) -> None:  # noqa: ARG002  Signal shows no language
        """Write a code block."""
        self.put_mark("`")
        self.put_lines(self.escape(text))
        self.put_mark("`")

    def format_link(self, text: str, address: str) -> str:
        """Return a link with its address."""
        shown = self.escape(address)
        return f"{text} ({shown})" if text.strip() and text != shown else shown
