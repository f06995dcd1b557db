"""Test cases: arguments of a skill, and the result and files that it must produce."""

from __future__ import annotations

import ast
import contextlib
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import UsageError
from hermes_exec_policies.gate.files import Expected, find_difference, parse_expected
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_policies.gate.files import LeftFile

_MOST = 5
_LONGEST = 300
"""The most characters of a reason."""
_CLOSE = 1e-9
_EXACT = 2**53
"""The bound up to which floating-point numbers represent every integer."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call, its expected result, and the files that it must write."""

    arguments: dict[str, Any] | list[Any]
    result: Any
    source: Level
    anything: bool = False
    """Whether any result is accepted: the call failed in use. Such a case does not strengthen the evidence."""
    files: Expected = field(default_factory=dict[str, dict[str, Any]])
    """The expected content of the files that it writes, by their paths below /app/data."""
    returns: bool = True
    """Whether the case has an expected result; a case with files may have none."""
    constant: str = ""
    """Why the result may be the same for all arguments."""

    def facts(self) -> dict[str, Any]:
        """Return the case as JSON data for the evidence."""
        found: dict[str, Any] = {"arguments": self.arguments, "source": str(self.source)}
        found |= {"result": self.result} if self.returns else {}
        found |= {"files": self.files} if self.files else {}
        return found | ({"constant": self.constant} if self.constant else {})

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Case:
        """Create a case from the output of ``facts``."""
        return cls(
            facts["arguments"], facts.get("result"), Level(facts["source"]), files=dict(facts.get("files") or {}),
            returns="result" in facts, constant=str(facts.get("constant", "")),
        )  # fmt: skip

    def accepts(self, result: Any, left: Mapping[str, LeftFile]) -> bool:
        """Return whether the result and the written files are the expected ones."""
        returned = self.anything or not self.returns or is_same(result, self.result)
        return returned and not any(find_difference(self.files, left))

    @classmethod
    def parse(cls, text: str, source: Level = Level.PERSON) -> Case:
        """Parse a case: ``{"arguments": {…}, "result": …, "files": {"report.csv": {"contains": …}}}``.

        Raises:
            UsageError: it is none.
        """
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = None
        found = cls.from_json(told, source) if isinstance(told, dict) else None  # pyright: ignore[reportUnknownArgumentType]  JSON
        if found is None:
            raise UsageError(f"{text[:60]!r} is no case", remedy='{"arguments": {"rows": [1]}, "result": 1}, as JSON')
        return found

    @classmethod
    def from_json(cls, told: Mapping[str, Any], source: Level) -> Case | None:
        """Create a case from a JSON object with arguments, and a result or files; None if it has neither.

        Raises:
            UsageError: its arguments or its files are invalid.
        """
        arguments = told.get("arguments")
        if arguments is None or not told.keys() & {"result", "files"}:
            return None
        if not isinstance(arguments, dict | list):
            raise UsageError("the arguments of a case are an object or a list")
        files = parse_expected(told["files"]) if told.get("files") else {}
        if not files and "result" not in told:
            return None
        constant = " ".join(str(told.get("constant") or "").split())[:_LONGEST]
        return cls(
            arguments,  # pyright: ignore[reportUnknownArgumentType]  JSON
            told.get("result"),
            source,
            files=files,
            returns="result" in told,
            constant=constant,
        )


def strongest_level(cases: Sequence[Case]) -> Level:
    """Return the level of evidence of passed cases; only those that the skill's author has not seen count."""
    return max((case.source for case in cases if case.source.unseen), key=list(Level).index, default=Level.SELF_TESTED)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; floating-point numbers approximately. ``true`` is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if (isinstance(one, int) and isinstance(other, int)) or _is_large(one) or _is_large(other):
            return one == other
        # The tolerance is relative, unless ``other`` is 0: an absolute one would accept any small number for 6e-34.
        try:
            return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=0 if other else _CLOSE)
        except OverflowError:  # an integer beyond the range of floats equals no float
            return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  JSON
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))  # pyright: ignore[reportUnknownArgumentType]  JSON
    return type(one) is type(other) and bool(one == other)  # pyright: ignore[reportUnknownArgumentType]  JSON


def _is_large(value: float) -> bool:
    """Return whether a value is an integer that floating-point numbers may not represent."""
    return isinstance(value, int) and abs(value) > _EXACT


def extract_cases(texts: Sequence[str], function: str) -> list[Case]:
    """Extract the assertions with literal values from a skill's tests, to repeat the calls from outside.

    Only tests without fixtures (autouse ones included) count, and of these only an assertion at their beginning, so
    that a case never depends on an earlier step of the test: a skill may keep state between calls.
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
                    found += _cases_of_assertion(test, function)
                case _:
                    pass
    return found[:_MOST]


def _prepares(node: ast.AST) -> bool:
    """Return whether a node does something before each test of a file."""
    match node:
        case ast.FunctionDef(name=name) if name.startswith(("setup_", "setUp")):
            return True
        case ast.keyword(arg="autouse"):
            return True
        case _:
            return False


def _cases_of_assertion(node: ast.expr, function: str) -> list[Case]:
    match node:
        case ast.BoolOp(op=ast.And(), values=[first, *_]):
            return _cases_of_assertion(first, function)
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[right]) if _calls(call, function):
            try:
                return [Case(_arguments(call), _plain(right), Level.SELF_TESTED)]
            except ValueError:
                return []
        case _:
            return []


def extract_call(texts: Sequence[str], function: str) -> dict[str, Any] | list[Any] | None:
    """Extract the first call with literal arguments from a skill's tests, whatever they assert."""
    for node in (each for text in texts for each in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Call) and _calls(node, function):
            with contextlib.suppress(ValueError):
                return _arguments(node)
    return None


def _calls(node: ast.Call, function: str) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == function and isinstance(node.func.value, ast.Name)


def _arguments(call: ast.Call) -> dict[str, Any] | list[Any]:
    """Return the arguments of a call; raise ValueError if they are not literals, or mix positions and names."""
    named = {each.arg: _plain(each.value) for each in call.keywords if each.arg}
    if (call.args and named) or len(named) != len(call.keywords):
        raise ValueError("neither by name nor in order")
    return named or [_plain(each) for each in call.args]


def _plain(node: ast.expr) -> Any:
    """Return a literal value; raise ValueError if JSON cannot represent it exactly, as a tuple or a numeric key."""
    try:
        value = ast.literal_eval(node)
        plain = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("no plain value") from error
    if plain != value:
        raise ValueError("no plain value")
    return plain
