"""The mark of an agent's shell, and the refusal of what is for a person alone."""

from __future__ import annotations

import os

from hermes_exec.errors import UsageError

AGENT = "HERMES_EXEC_AGENT"
"""The variable that has the model's name in shells of an agent: skills registered from there are the agent's."""


def refuse_agent(command: str = "this") -> None:
    """Check that this is not the shell of an agent: changes are recorded as the person's, and judgements are evidence.

    Raises:
        UsageError: it is.
    """
    if AGENT in os.environ:
        raise UsageError(f"{command} is for a person, and this is the shell of an agent ({AGENT} is set)")
