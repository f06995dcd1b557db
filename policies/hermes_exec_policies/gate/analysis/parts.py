"""Find the parts of a function that no case from outside needs.

A case shows that its own result is right, and with it the parts of the function that this result needs. All cases have
the same results without an unneeded part. Such a part can change any other result: an entry of a table, a term that is
nearly always 0, a replacement in a text.
"""

from __future__ import annotations

import ast
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.analysis.mutants import reachable_nodes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_SHOWN = 60
_CASTS = frozenset(
    {"bool", "bytes", "dict", "float", "int", "isinstance", "len", "list", "print", "round", "str", "tuple"}
)
"""Functions that change the type of their argument, or nothing that a case has to show."""
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Expr)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a script."""

    line: int
    text: str
    source: str
    """The script without it."""


def list_parts(source: str, function: str, most: int) -> list[Part]:
    """Return the whole script in the layout of the others, and the parts of a function and of what it uses, by line.

    Parts are operands, arguments that are not constant, calls with arguments around a value, subscripts, entries of
    displays, formatted values and simple statements. Conditions are none, as ways are checked elsewhere; what leads to
    an error alone is none, as errors are no results. Of more than ``most`` parts, only the first are returned, and one.
    """
    tree = ast.parse(source)
    whole = Part(0, "", ast.unparse(tree))
    found = {whole.source: whole}
    for part, changed in _walk_changes(tree, function):
        text = " ".join(ast.unparse(part).split())
        with changed:
            without = ast.unparse(tree)
        if without not in found and _is_valid(without):
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            found[without] = Part(getattr(part, "lineno", 0), shown, without)
        if len(found) > most + 1:
            break
    return sorted(found.values(), key=lambda each: each.line)


def _walk_changes(tree: ast.Module, function: str) -> Iterator[tuple[ast.AST, Any]]:
    """Yield each part of what a function uses, with the change that leaves it out."""
    chosen = {id(node) for node in reachable_nodes(tree, function)}
    ends = not any(isinstance(each, ast.Try | ast.TryStar) or _is_suppressing(each) for each in ast.walk(tree))
    exempt = {id(node) for each in ast.walk(tree) for part in _list_exempt(each, ends) for node in ast.walk(part)}
    for parent in ast.walk(tree):
        for field, value in list(ast.iter_fields(parent)):
            children: list[Any] = [*value] if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownArgumentType]  ast
            for child in children:
                if id(child) in chosen and id(child) not in exempt:
                    yield from _list_changes(parent, field, child)


def _is_valid(source: str) -> bool:
    try:
        compile(source, "part", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _is_suppressing(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name):
            return name in {"suppress", "__exit__", "__aexit__"}
        case _:
            return False


def _list_exempt(node: ast.AST, errors_end: bool) -> list[ast.AST]:  # noqa: FBT001  one caller
    """Return the parts of a node that no case has to show: types, and conditions of errors that end the call."""
    match node:
        case ast.If(test=test, body=body) if errors_end and all(isinstance(each, ast.Raise) for each in body):
            return [] if any(isinstance(each, ast.NamedExpr) for each in ast.walk(test)) else [test]
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, types]):
            return [types]
        case ast.ExceptHandler(type=ast.AST() as types):
            return [types]
        case _:
            return []


def _list_changes(parent: ast.AST, field: str, child: ast.AST) -> Iterator[tuple[ast.AST, Any]]:
    """Yield each part of a child, or the child itself, with the change of the parent that leaves it out."""
    match child:
        case ast.BinOp(left=left, right=right):
            yield right, _replace(parent, field, child, left)
            yield left, _replace(parent, field, child, right)
        case ast.Subscript(value=value, ctx=ast.Load()):
            yield child, _replace(parent, field, child, value)
        case ast.Call(func=ast.Name(id=name)) if name in _CASTS:
            pass
        case ast.Call(func=called, args=args, keywords=named) if args or named:
            values = [each for each in args if not isinstance(each, ast.Starred)]
            for each in [called.value, *values] if isinstance(called, ast.Attribute) else values:
                yield child, _replace(parent, field, child, each)
        case _:
            pass
    if _is_optional(parent, field, child):
        yield child, _omit(parent, field, child)


def _is_optional(parent: ast.AST, field: str, child: ast.AST) -> bool:
    """Return whether a parent is valid without a child of a list."""
    match parent, field:
        case ast.Call(args=args), "args":
            return child is args[-1] and _varies(child)
        case ast.Call(), "keywords":
            return _varies(child)
        case ((ast.List() | ast.Tuple() | ast.Set()), "elts"):
            return isinstance(getattr(parent, "ctx", ast.Load()), ast.Load)
        case ast.Dict(), "keys":
            return True
        case ast.JoinedStr(), "values":
            return isinstance(child, ast.FormattedValue)
        case _, "body" | "orelse" | "finalbody":
            return isinstance(child, _SIMPLE)
        case _:
            return False


def _varies(node: ast.AST) -> bool:
    """Return whether a value is more than constants, calls with these, and attributes of names, such as ``re.S``."""
    fixed = {
        id(each.func if isinstance(each, ast.Call) else each.value)
        for each in ast.walk(node)
        if isinstance(each, ast.Call | ast.Attribute)
    }
    return any(isinstance(each, ast.Name) and id(each) not in fixed for each in ast.walk(node))


@contextmanager
def _replace(parent: ast.AST, field: str, child: ast.AST, other: ast.AST) -> Generator[None]:
    """Replace a child by another node."""
    value: Any = getattr(parent, field)
    changed = [other if each is child else each for each in value] if isinstance(value, list) else other  # pyright: ignore[reportUnknownVariableType]  ast
    setattr(parent, field, changed)
    try:
        yield
    finally:
        setattr(parent, field, value)


@contextmanager
def _omit(parent: ast.AST, field: str, child: ast.AST) -> Generator[None]:
    """Leave a child of a list out, with its value if it is a key."""
    fields = ("keys", "values") if isinstance(parent, ast.Dict) else (field,)
    before: dict[str, list[Any]] = {each: getattr(parent, each) for each in fields}
    index = next(number for number, each in enumerate(before[field]) if each is child)
    for name, nodes in before.items():
        rest = [*nodes[:index], *nodes[index + 1 :]]
        setattr(parent, name, rest or [ast.Pass()] if name == "body" else rest)
    try:
        yield
    finally:
        for name, nodes in before.items():
            setattr(parent, name, nodes)
