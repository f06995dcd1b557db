"""Errors of calls of other servers' tools."""

from __future__ import annotations

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


def flatten_errors(error: Exception) -> list[Exception]:
    """Return the errors of a group, and of those in it."""
    if isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        return [leaf for each in group.exceptions for leaf in flatten_errors(each)]
    return [error]
