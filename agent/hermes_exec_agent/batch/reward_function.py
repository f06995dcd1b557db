"""Functions of the person's that score trials: their loading, what they get, and what they return."""

from __future__ import annotations

import importlib
import math
import runpy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from hermes_exec_agent.batch.trajectories.reading import RecordedConversation
    from hermes_exec_agent.batch.trials import Trial

_LINE = 300
Function = Callable[..., object]


def load_function(word: str) -> Function:
    """Return the function that ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION`` names.

    Raises:
        UsageError: there is none.
    """
    source, name = split_name(word)
    function: object
    try:
        if source.endswith(".py"):
            function = runpy.run_path(source)[name]
        else:
            function = getattr(importlib.import_module(source), name)
    except (Exception, SystemExit) as error:  # it is the person's code
        why = flatten(f"{type(error).__name__}: {error}", _LINE)
        raise UsageError(
            f"{to_printable(word)}: it cannot be loaded: {why}", remedy="an importable function"
        ) from error
    if not callable(function):
        raise UsageError(f"{to_printable(word)}: it is not a function", remedy="MODULE:FUNCTION or FILE.py:FUNCTION")
    return function


def split_name(word: str) -> tuple[str, str]:
    """Return the source and the name of a function.

    Raises:
        UsageError: the word names none.
    """
    source, colon, name = word.rpartition(":")
    if not (colon and source and name.isidentifier()):
        raise UsageError(f"{to_printable(word)}: it names no function", remedy="MODULE:FUNCTION or FILE.py:FUNCTION")
    return source, name


def to_input(trial: Trial, result: dict[str, Any], conversation: RecordedConversation | None) -> dict[str, Any]:
    """Return what a function gets about a trial; without a conversation no messages and events."""
    segments = conversation.list_segments() if conversation is not None else []
    events = conversation.events if conversation is not None else ()
    return {
        "task": trial.task.model_dump(mode="json"),
        "result": result,
        "messages": [each.message.to_wire() for segment in segments for each in segment if not each.copied],
        "events": [{"number": each.number, "kind": each.kind, "data": each.data} for each in events],
    }


def read_reward(found: object) -> tuple[float, dict[str, float]]:
    """Return the reward that a function returned, and its further numbers.

    Raises:
        ValueError: it returned neither a finite number nor a mapping of them with a ``reward``.
    """
    if isinstance(found, Mapping):
        numbers = {str(name): _to_number(value) for name, value in cast("Mapping[object, object]", found).items()}
        if "reward" not in numbers:
            raise ValueError("the mapping has no 'reward'")
        return numbers.pop("reward"), numbers
    return _to_number(found), {}


def _to_number(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{flatten(repr(value), 80)} is not a finite number")
    return float(value)
