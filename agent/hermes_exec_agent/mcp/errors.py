"""Errors of calls of other servers' tools."""

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
