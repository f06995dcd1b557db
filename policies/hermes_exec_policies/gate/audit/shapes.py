"""Shapes of Python code that the audit's rules ask for: what is called, what is compared, what is gone through."""

from __future__ import annotations

import ast
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
     ("date", "today"), ("?", "now"), ("?", "today"), ("?", "utcnow")}
)  # fmt: skip
_DESCRIPTORS = frozenset(
    {
        ("os", name)
        for name in ("fstat", "read", "write", "dup", "dup2", "lseek", "isatty", "fdopen", "sendfile", "readv")
    }
)
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


def dated(left: ast.expr, right: ast.expr, folder: Folder) -> bool:
    """Whether one side is what time it is, and the other one a moment that stands in the text."""
    if is_now(left) == is_now(right):
        return False
    now, other = (left, right) if is_now(left) else (right, left)
    value = folder.value(other)
    if isinstance(value, int) and any(
        isinstance(each, ast.Attribute) and each.attr == "year" for each in ast.walk(now)
    ):
        return True
    return is_fixed(other) or (isinstance(value, int) and value > _LONG_AGO)


def is_now(node: ast.expr) -> bool:
    """Whether it asks what time it is."""
    return any(isinstance(each, ast.Call) and callee(each.func) in _NOW for each in ast.walk(node))


def is_fixed(node: ast.expr) -> bool:
    """Whether it is a moment that stands in the text: a large number, or a date of numbers or of words."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value > _LONG_AGO
        case ast.Constant(value=str()):
            return True
        case ast.Call(args=[*arguments]):
            return bool(arguments) and all(isinstance(each, ast.Constant) for each in arguments)
        case _:
            return False


def is_false(node: ast.expr) -> bool:
    """Whether it says false, or nothing, in so many words."""
    return isinstance(node, ast.Constant) and not node.value
