"""The calls in a skill's own tests, which are repeated from outside."""

from __future__ import annotations

import ast
import contextlib
import json
from typing import Any

from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level

_MOST = 5


def extract_cases(texts: list[str], function: str) -> list[Case]:
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


def extract_call(texts: list[str], function: str) -> dict[str, Any] | list[Any] | None:
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
        raise ValueError("not a plain value") from error
    if plain != value:
        raise ValueError("not a plain value")
    return plain
