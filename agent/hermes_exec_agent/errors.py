"""What can go wrong between the agent and its models; of the one tree of errors."""

from __future__ import annotations

from hermes_exec.errors import HermesError


class ModelError(HermesError):
    """No whole reply could be had from a model."""


class NoModel(ModelError):
    """Nothing says which model to ask, or the key for it is missing.

    ``looked_for`` tells what was looked for and not found, a line each.
    """

    def __init__(self, what: str, *, remedy: str = "", looked_for: tuple[str, ...] = ()) -> None:
        super().__init__(what, remedy=remedy)
        self.looked_for = looked_for


class ModelRefused(ModelError):
    """The endpoint will not answer this, however often: key, rights, the model's name, or the request."""


class ContextTooLong(ModelError):
    """The conversation does not fit into the model's window, which is ``window`` tokens where that is known."""

    def __init__(self, what: str, *, remedy: str = "", window: int | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.window = window


class ScriptEnded(ModelError):
    """A scripted model was asked more often than it has replies."""
