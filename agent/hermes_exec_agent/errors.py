"""Errors of models and of budgets, part of the tree below `HermesError`."""

from __future__ import annotations

from hermes_exec.errors import HermesError, UsageError


class ModelError(HermesError):
    """A model returned no complete reply."""


class NoModel(ModelError, UsageError):
    """No model, or no key for it, is configured.

    ``looked_for`` lists the settings that were looked up, one line each.
    """

    def __init__(self, what: str, *, remedy: str = "", looked_for: tuple[str, ...] = ()) -> None:
        super().__init__(what, remedy=remedy)
        self.looked_for = looked_for


class ModelRefused(ModelError):
    """The endpoint refuses the request, and would again: key, permissions, model name or content."""


class RequestRefused(ModelRefused):
    """The endpoint refuses this request for its form or its content; it may accept others."""


class ContextTooLong(ModelError):
    """The conversation exceeds the model's window of ``window`` tokens, if that is known."""

    def __init__(self, what: str, *, remedy: str = "", window: int | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.window = window


class BudgetSpent(UsageError):
    """No model may be asked, as a budget of dollars is spent, or cannot be kept; nothing was recorded."""


class ScriptEnded(ModelError):
    """A scripted model received more requests than it has replies."""


class HookRefused(HermesError):
    """A hook of the user's configuration blocks a request; nothing of it was recorded."""
