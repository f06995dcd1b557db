"""Links and images of answers: those to a host that no person named become text.

A program that renders Markdown fetches its images, and hides the address of a link behind its text; either can carry
data away. A hostile text that a model obeys must not do that, so a destination stays a link only if it is plainly a
relative path, or an address at a host that the person named. Everything else loses its markup, and keeps its address.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_RELATIVE = re.compile(r"(?!//)[^:\\&<>\x00-\x20\x7f]*")
_ADDRESS = re.compile(r"https?://[^\s\\&<>`]+", re.IGNORECASE)
_LINK = re.compile(r"\](?=(?:\(|:)\s*<?([^\s)>]*))")
_AUTOLINK = re.compile(r"<([a-z][a-z0-9+.-]{1,31}:[^\s<>]*|[^\s<>@/]+@[^\s<>@/]+)>", re.IGNORECASE)
_VALUED = r"\s+[a-z_:][\w.:-]*(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?"
_TAG = re.compile(rf"<[a-z][^\s/>]*((?:{_VALUED})*)\s*/?>", re.IGNORECASE)
_TAG_START = re.compile(r"<(?=[a-z][^\s/>]*[\s/])", re.IGNORECASE)
_LEADS = re.compile(
    r"//|\\|&(?!(?:amp|lt|gt|quot);)|url\(|\b(?:https?|ftp|wss?|data|file|javascript|mailto|vbscript):", re.IGNORECASE
)
"""What a value of an attribute has if it may lead elsewhere."""
_ATTRIBUTE = re.compile(r"=\s*(?:\"([^\"]*)\"?|'([^']*)'?|([^\s\"'>]+))")
_UNFINISHED = re.compile(
    r"(?:\](?:\(\s*<?[^\s)>]*|:\s*<?\S*)?|<[^\s<>]*"
    rf"|<[a-z][^\s/>]*(?:{_VALUED})*(?:\s+(?:[a-z_:][\w.:-]*\s*(?:=\s*(?:\"[^\"]*|'[^']*|[^\s\"'=<>`]*))?)?)?/?)\Z",
    re.IGNORECASE,
)
_MOST = 2048
"""Characters of an unfinished construct that are held back."""


def links_to_text(text: str, hosts: Collection[str]) -> str:
    """Return Markdown whose links and images lead to ``hosts`` and relative paths alone; others become text.

    Args:
        text: Markdown of a model, whole; `LinkFilter` takes it in pieces.
        hosts: names in lower case, such as `Conversation.hosts`.
    """

    def link(found: re.Match[str]) -> str:
        return found[0] if is_allowed(found[1], hosts) else "] "

    def tag(found: re.Match[str]) -> str:
        whole = _TAG.match(found.string, found.start())
        if whole is None:
            return "<" if _AUTOLINK.match(found.string, found.start()) else "< "
        values = ("".join("".join(each).split()) for each in _ATTRIBUTE.findall(whole[1]))
        return "<" if all(is_allowed(each, hosts) for each in values if _LEADS.search(each)) else "< "

    text = _AUTOLINK.sub(
        lambda found: found[0] if ":" in found[1] and is_allowed(found[1], hosts) else f"({found[1]})", text
    )
    return _LINK.sub(link, _TAG_START.sub(tag, text))


def is_allowed(destination: str, hosts: Collection[str]) -> bool:
    """Whether a link may lead there: a relative path, or an address at one of ``hosts`` without any escapes."""
    if _RELATIVE.fullmatch(destination):
        return True
    if not _ADDRESS.fullmatch(destination):
        return False
    try:
        return (urlsplit(destination).hostname or "") in hosts
    except ValueError:
        return False


class LinkFilter:
    """Applies `links_to_text` to a text that arrives in pieces."""

    def __init__(self, write: Callable[[str], None], hosts: Callable[[], Collection[str]]) -> None:
        """``write`` takes the pieces; ``hosts`` returns the hosts that a person named until now."""
        self._write = write
        self._hosts = hosts
        self._held = ""

    def feed(self, text: str) -> None:
        """Take a piece; the beginning of a link waits for its end, and one that is too long loses its markup."""
        self._held += text
        while unfinished := _UNFINISHED.search(self._held):
            start = unfinished.start()
            self._emit(self._held[:start])
            self._held = self._held[start:]
            if len(self._held) <= _MOST:
                return
            self._write(f"{self._held[0]} ")
            self._held = self._held[1:]
        self.flush()

    def flush(self) -> None:
        """Write what waits."""
        held, self._held = self._held, ""
        self._emit(held)

    def _emit(self, text: str) -> None:
        if text:
            self._write(links_to_text(text, self._hosts()))
