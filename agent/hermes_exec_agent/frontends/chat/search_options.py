"""The options of a search, as a person writes them."""

from __future__ import annotations

import re
import shlex
import time
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.chat.listing import LAST, find_conversation
from hermes_exec_agent.runtime.events.search import SCOPES, SearchFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.runtime.events.search import Scope

USAGE = "[--since DATE] [--until DATE] [--in SCOPE]"
DATES = '2026-01-31, "2026-01-31 14:30", today, yesterday, 12h, 7d or 2w'
_AGO = re.compile(r"([0-9]{1,5})([hdw])")
_UNITS_S = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_OPTIONS = ("--since", "--until", "--in")


def create_filter(log: EventLog, since: str = "", until: str = "", within: Sequence[str] = ()) -> SearchFilter:
    """Return the filter of a search.

    Args:
        log: the log of the conversations.
        since: a date, inclusive; see `DATES`.
        until: a date; a day is included.
        within: kinds of text (messages, results, notes, thoughts), a conversation, or a target.

    Raises:
        UsageError: a value has another form, no conversation has that id or target, or there are two of them.
    """
    fields: dict[str, Any] = {}
    scopes: set[Scope] = set()
    for word in within:
        if word in SCOPES:
            scopes.add(word)
            continue
        is_conversation = word == LAST or word[:1].isdigit()
        name = "conversation" if is_conversation else "target"
        if name in fields:
            raise UsageError(f"--in takes one {name}", remedy="leave one of them out")
        fields[name] = find_conversation(log, word) if is_conversation else _find_target(log, word)
    if scopes:
        fields["scopes"] = frozenset(scopes)
    if since:
        fields["since"] = parse_date(since)
    if until:
        fields["until"] = parse_date(until, is_end=True)
    return SearchFilter(**fields)


def _find_target(log: EventLog, word: str) -> str:
    if word not in log.targets():
        raise UsageError(
            f"--in: no conversation is in a target {to_printable(word)}",
            remedy=f"{', '.join(SCOPES)}, {LAST}, an ID, or a target as hermes-exec conversations list shows it",
        )
    return word


def parse_search(log: EventLog, typed: str) -> tuple[str, SearchFilter]:
    """Return the words and the filter of a line with options.

    Raises:
        UsageError: the line has another form.
    """
    try:
        parts = shlex.split(typed)
    except ValueError:  # an open quote is a character to search for
        parts = typed.split()
    words: list[str] = []
    given: dict[str, list[str]] = {name: [] for name in _OPTIONS}
    while parts:
        part = parts.pop(0)
        name, equals, value = part.partition("=")
        if name not in given:
            words.append(part)
        elif equals or parts:
            given[name].append(value if equals else parts.pop(0))
        else:
            raise UsageError(f"{name} needs a value", remedy=USAGE)
    since, until = ((given[name] or [""])[-1] for name in ("--since", "--until"))
    return " ".join(words), create_filter(log, since, until, given["--in"])


def parse_date(text: str, *, is_end: bool = False) -> float:
    """Return the time of a date in this machine's time zone; with ``is_end``, the end of a day.

    Raises:
        UsageError: the text has another form.
    """
    word = text.strip().lower()
    if match := _AGO.fullmatch(word):
        return time.time() - int(match[1]) * _UNITS_S[match[2]]
    if word in ("today", "yesterday"):
        now = time.localtime()
        day = now.tm_mday - (word == "yesterday") + is_end
        return time.mktime((now.tm_year, now.tm_mon, day, 0, 0, 0, 0, 0, -1))
    for form in ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"):
        try:
            found = time.strptime(word.upper(), form)
        except ValueError:
            continue
        day = found.tm_mday + (is_end and form == "%Y-%m-%d")
        return time.mktime((found.tm_year, found.tm_mon, day, found.tm_hour, found.tm_min, 0, 0, 0, -1))
    raise UsageError(f"{text!r} is not a date", remedy=DATES)
