"""Lines of IRC: their parts, and messages in them."""

from __future__ import annotations

import re
from typing import NamedTuple

from hermes_exec_agent.frontends.gateway.adapter import Incoming

_CODES = re.compile(r"\x03\d{0,2}(?:,\d{1,2})?|[\x00-\x1f\x7f]")
_LINE = re.compile(r"(?:@\S+ )?(?::(\S+) )?(\S+)(?: ([^:].*?|))?(?: ?:(.*))?")


class Line(NamedTuple):
    """The parts of a line; empty ones were not there."""

    prefix: str = ""
    command: str = ""
    middle: str = ""
    """The parameters but the last."""
    text: str = ""


def parse_line(data: bytes) -> Line:
    """Return the parts of a line; empty parts for one that is not of IRC."""
    found = _LINE.fullmatch(data.decode(errors="replace").rstrip("\r\n"))
    return Line(found[1] or "", found[2], found[3] or "", found[4] or "") if found else Line()


def remove_codes(text: str) -> str:
    """Return text without codes for colours and the like, and without other control characters."""
    return _CODES.sub("", text)


def parse_message(line: Line, nick: str, id: str) -> Incoming | None:
    """Return the message to ``nick`` or to a channel; None for a server's line, or a request of CTCP."""
    if "!" not in line.prefix or line.text.startswith("\x01"):
        return None
    target = line.middle.split(" ")[0]
    text, is_group = remove_codes(line.text).strip(), target[:1] in "#&+!"
    called = re.fullmatch(rf"@?{re.escape(nick)}[:,]?\s+(.*)", text, re.IGNORECASE) if is_group else None
    text = called[1] if called else text
    if re.match(r"![a-z]", text):  # clients of IRC keep lines with a slash for themselves
        text = f"/{text[1:]}"
    chat = target.lower() if is_group else line.prefix.partition("!")[0]
    return Incoming(chat, id, line.prefix.lower(), text, is_group=is_group, is_mention=called is not None)
