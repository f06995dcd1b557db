"""Shapes of Python code that the audit's rules ask for: what is called, what is compared, what is gone through."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_policies.gate.audit.folded import Folder

HARMLESS = frozenset(
    {"gethostname", "inet_aton", "inet_ntoa", "inet_pton", "inet_ntop", "htons", "htonl", "ntohs", "ntohl", "AF_INET",
     "AF_INET6", "AF_UNIX", "error", "gaierror", "herror", "timeout", "has_ipv6", "getservbyname", "getservbyport"}
)  # fmt: skip
"""What of ``socket`` reaches nobody: names, and numbers in another order."""
_NOW = frozenset(
    {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"),
     ("date", "today"), ("?", "now"), ("?", "today"), ("?", "utcnow"), ("time", "gmtime"), ("time", "localtime"),
     ("time", "strftime"), ("time", "ctime"), ("time", "asctime")}
)  # fmt: skip
_DESCRIPTORS = frozenset(
    {
        ("os", name)
        for name in ("fstat", "read", "write", "dup", "dup2", "lseek", "isatty", "fdopen", "sendfile", "readv")
    }
)
_DATE = re.compile(r"\d{4}|[^\W\d]{3}")
"""A year, or a name of a day or a month."""
_COUNTS = frozenset({"time", "datetime", "date", "dt", "calendar", "int", "str", "float"})
_LARGE = 1000
_LONG_AGO = 1_000_000_000


def is_harmless(tree: ast.Module) -> bool:
    """Whether the module ``socket`` is used for nothing but what reaches nobody."""
    used = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == "socket"]
    named = [each.value for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr in HARMLESS]
    return bool(used) and all(any(name is each for each in named) for name in used)


def callee(node: ast.expr) -> tuple[str, str]:
    """The owner and the name of what is called; ``?`` is an owner that is no plain name."""
    match node:
        case ast.Name(id=name):
            return "", name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return owner, name
        case ast.Attribute(attr=name):
            return "?", name
        case _:
            return "?", ""


def description(node: ast.AST) -> list[ast.expr]:
    """The text that a module, a class or a function begins with."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
        first = node.body[0]
        return [first.value] if isinstance(first, ast.Expr) else []
    return []


def joined(node: ast.expr) -> str:
    """The texts of a path that is put together, as of a path below one's home."""
    words = [each for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    ordered = sorted(words, key=lambda each: (each.lineno, each.col_offset))
    return "~/" + "/".join(str(each.value) for each in ordered)


def is_environment(node: ast.expr) -> bool:
    """Whether it is all variables, or all of their names or values."""
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb") | ast.Name(id="environ" | "environb"):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr="items" | "keys" | "values" | "copy")):
            return is_environment(inner)
        case ast.Call(func=ast.Name(id="dict" | "list" | "sorted" | "tuple" | "set"), args=[inner]):
            return is_environment(inner)
        case _:
            return False


def tries(loop: ast.For, name: str) -> bool:
    """Whether a loop uses its number as a descriptor."""
    return any(
        isinstance(each, ast.Call)
        and callee(each.func) in _DESCRIPTORS
        and any(isinstance(argument, ast.Name) and argument.id == name for argument in each.args[:1])
        for each in ast.walk(loop)
    )


def is_numbers(node: ast.expr) -> bool:
    """Whether it is numbers one after the other, in so many words or as a range."""
    match node:
        case ast.Call(func=ast.Name(id="range")):
            return True
        case ast.Tuple(elts=many) | ast.List(elts=many):
            return all(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in many)
        case _:
            return False


class Clock:
    """What in a file is the time now, and what a moment that stands in its text, also by the names of these."""

    def __init__(self, tree: ast.Module, folder: Folder) -> None:
        self._folder = folder
        self._now: set[str] = set()
        self._fixed: set[str] = set()
        assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                assigned.setdefault(node.targets[0].id, []).append(node.value)
        for name, values in assigned.items():
            if all(map(self.is_now, values)):
                self._now.add(name)
            elif all(isinstance(value, ast.Call) and _is_moment(value) for value in values):
                self._fixed.add(name)

    def dated(self, left: ast.expr, right: ast.expr) -> bool:
        """Whether one side is what time it is, and the other one a moment that stands in the text."""
        if self.is_now(left) == self.is_now(right):
            return False
        now, other = (left, right) if self.is_now(left) else (right, left)
        value = self._folder.value(other)
        if isinstance(value, int) and any(
            isinstance(each, ast.Attribute) and each.attr in {"year", "tm_year"} for each in ast.walk(now)
        ):
            return True
        if self._is_since(now) or (isinstance(value, int) and value > _LARGE and self._is_calendar(now)):
            return True
        return self._is_fixed(other) or (isinstance(value, int) and value > _LONG_AGO)

    def is_now(self, node: ast.expr) -> bool:
        """Whether it asks what time it is."""
        return any(
            (isinstance(each, ast.Call) and callee(each.func) in _NOW)
            or (isinstance(each, ast.Name) and each.id in self._now)
            for each in ast.walk(node)
        )

    def _is_since(self, node: ast.expr) -> bool:
        """Whether it is how long ago a moment is that stands in the text."""
        return any(
            isinstance(each, ast.BinOp)
            and isinstance(each.op, ast.Sub)
            and self.is_now(each.left)
            and (self._is_fixed(each.right) if isinstance(each.right, ast.Name) else _is_said(each.right))
            for each in ast.walk(node)
        )

    def _is_calendar(self, node: ast.expr) -> bool:
        """Whether it is the time now, counted in another way, and neither a span nor a rest."""
        for each in ast.walk(node):
            match each:
                case ast.BinOp(op=ast.Mod() | ast.Sub()) | ast.Attribute(attr="microsecond"):
                    return False
                case ast.Name(id=name, ctx=ast.Load()) if name not in self._now | _COUNTS:
                    return False
                case _:
                    pass
        return True

    def _is_fixed(self, node: ast.expr) -> bool:
        """Whether it is a moment that stands in the text: a large number, or a date of numbers or of words."""
        match node:
            case ast.Name(id=name):
                return name in self._fixed
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
                return any(
                    self._is_fixed(each) if isinstance(each, ast.Name) else _is_said(each) for each in (left, right)
                )
            case ast.Constant(value=int() | float() as value):
                return value > _LONG_AGO
            case ast.Constant(value=str(text)):
                return _DATE.search(text) is not None
            case ast.Call():
                return bool(node.args) and all(isinstance(each, ast.Constant) for each in node.args)
            case _:
                return False


def _is_said(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _is_moment(node)


def _is_moment(node: ast.Call) -> bool:
    return (
        callee(node.func)[1] in {"datetime", "date", "fromisoformat", "fromtimestamp", "strptime"}
        and bool(node.args)
        and all(isinstance(each, ast.Constant) for each in node.args)
    )


def is_false(node: ast.expr) -> bool:
    """Whether it says false, or nothing, in so many words."""
    return isinstance(node, ast.Constant) and not node.value
