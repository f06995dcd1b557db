"""Errors of calls of other servers' tools."""

from __future__ import annotations

import re
import shlex
from typing import cast

from hermes_exec.errors import HermesError, OutcomeUnknown


class AnswerLost(OutcomeUnknown):
    """The connection was lost before a call was answered."""

    state = "unknown: the call may have run, wholly or in part, and is not sent again"


class ServerStuck(OutcomeUnknown):
    """A server neither reads nor answers; its connection is of no further use."""

    state = AnswerLost.state


class ToolDisabled(HermesError):
    """The description of a tool differs from the accepted one; the call was not sent."""


class CallRefused(HermesError):
    """The server answered a call with an error of the protocol."""

    state = "the server refused the call"


class FurtherRights(CallRefused):
    """The server refused a request, as the login does not have the rights for it."""

    def __init__(self, name: str, what: str, scope: str) -> None:
        """``scope``: the rights that the server named, each of a form that `parse_scope` accepted."""
        self.scope = scope
        named = f": {scope}" if scope else ""
        super().__init__(f"{what} needs further rights{named}", remedy=login_command(name, scope))


_RIGHT = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]{1,100}")
_MOST_RIGHTS = 20


def parse_scope(text: str) -> str:
    """Return the rights of a server's text, each once; empty if one has a form that RFC 6749 does not allow."""
    rights = list(dict.fromkeys(text.split()))
    if len(rights) > _MOST_RIGHTS or not all(_RIGHT.fullmatch(each) for each in rights):
        return ""
    return " ".join(rights)


def login_command(name: str, scope: str = "") -> str:
    """Return the command by which a person logs in at a server."""
    return f"hermes-exec mcp login {name}" + (f" --scope {shlex.quote(scope)}" if scope else "")


def flatten_errors(error: Exception) -> list[Exception]:
    """Return the errors of a group, and of those in it."""
    if isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        return [leaf for each in group.exceptions for leaf in flatten_errors(each)]
    return [error]
