"""Cases: what a skill is called with and what it must return, from whoever did not write it, or from its own tests."""

from __future__ import annotations

import ast
import contextlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import UsageError
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST = 5
_CLOSE = 1e-9
_EXACT = 2**53
"""Up to here a floating-point number is every whole number; of larger ones it is some."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call and its result."""

    arguments: dict[str, Any] | list[Any]
    result: Any
    source: Level
    anything: bool = False
    """Any result will do: it failed in use, and what counts is that there is one. It makes no evidence stronger."""

    def facts(self) -> dict[str, Any]:
        """For the record of what a skill had to hold."""
        return {"arguments": self.arguments, "result": self.result, "source": str(self.source)}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Case:
        """The case that ``facts`` are of."""
        return cls(facts["arguments"], facts["result"], Level(facts["source"]))

    def held_by(self, result: Any) -> bool:
        """Whether this result is what it must give."""
        return self.anything or same(result, self.result)

    @classmethod
    def parse(cls, text: str, source: Level = Level.PERSON) -> Case:
        """A case from ``{"arguments": {…}, "result": …}``.

        Raises:
            UsageError: it is none.
        """
        try:
            told = json.loads(text)
            arguments, result = told["arguments"], told["result"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(
                f"{text[:60]!r} is no case", remedy='{"arguments": {"rows": [1]}, "result": 1}, as JSON'
            ) from error
        if not isinstance(arguments, dict | list):
            raise UsageError("the arguments of a case are an object or a list")
        return cls(arguments, result, source)  # pyright: ignore[reportUnknownArgumentType]  JSON


def strongest(cases: Sequence[Case]) -> Level:
    """How strong the evidence of these cases is, once they held."""
    order = list(Level)
    return max((case.source for case in cases), key=order.index, default=Level.SELF_TESTED)


def same(one: Any, other: Any) -> bool:
    """Whether a JSON value is what the ``other`` is; floating-point numbers nearly so. ``true`` is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if (isinstance(one, int) and isinstance(other, int)) or _is_large(one) or _is_large(other):
            return one == other
        # What is not nearly nothing is compared by its own size: of 6e-34 most numbers are no more than 1e-9 away.
        try:
            return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=0 if other else _CLOSE)
        except OverflowError:  # a whole number that no other one can be near
            return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  JSON
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))  # pyright: ignore[reportUnknownArgumentType]  JSON
    return type(one) is type(other) and bool(one == other)  # pyright: ignore[reportUnknownArgumentType]  JSON


def _is_large(value: float) -> bool:
    """Whether it is a whole number that must not have been counted in floating-point ones."""
    return isinstance(value, int) and abs(value) > _EXACT


def own_cases(texts: Sequence[str], function: str) -> list[Case]:
    """What a skill's tests assert of it in plain values, to be called again from outside, where no test can help it.

    Only tests without fixtures, also such as no test asks for, and of these only the assertion that they begin with, so
    that a case never rests on something that the test did first: a skill may keep what it was told before.
    """
    found: list[Case] = []
    for text in texts:
        tree = ast.parse(text)
        if any(map(_prepares, ast.walk(tree))):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(
                    name=name, args=ast.arguments(args=[]), decorator_list=[], body=[ast.Assert(test=test), *_]
                ) if name.startswith("test"):
                    found += _asserted(test, function)
                case _:
                    pass
    return found[:_MOST]


def _prepares(node: ast.AST) -> bool:
    """Whether it does something before each test of a file."""
    match node:
        case ast.FunctionDef(name=name) if name.startswith(("setup_", "setUp")):
            return True
        case ast.keyword(arg="autouse"):
            return True
        case _:
            return False


def _asserted(node: ast.expr, function: str) -> list[Case]:
    match node:
        case ast.BoolOp(op=ast.And(), values=[first, *_]):
            return _asserted(first, function)
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[right]) if _calls(call, function):
            try:
                return [Case(_arguments(call), _plain(right), Level.SELF_TESTED)]
            except ValueError:
                return []
        case _:
            return []


def own_call(texts: Sequence[str], function: str) -> dict[str, Any] | list[Any] | None:
    """The first arguments in plain values that a skill's tests call it with, whatever they ask of its result."""
    for node in (each for text in texts for each in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Call) and _calls(node, function):
            with contextlib.suppress(ValueError):
                return _arguments(node)
    return None


def _calls(node: ast.Call, function: str) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == function and isinstance(node.func.value, ast.Name)


def _arguments(call: ast.Call) -> dict[str, Any] | list[Any]:
    """Raises ValueError where they are not plain values, or some by name and some in order."""
    named = {each.arg: _plain(each.value) for each in call.keywords if each.arg}
    if (call.args and named) or len(named) != len(call.keywords):
        raise ValueError("neither by name nor in order")
    return named or [_plain(each) for each in call.args]


def _plain(node: ast.expr) -> Any:
    """Raises ValueError for what JSON cannot say, or turns into something else, as a tuple or a number as a key."""
    try:
        value = ast.literal_eval(node)
        plain = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("no plain value") from error
    if plain != value:
        raise ValueError("no plain value")
    return plain
