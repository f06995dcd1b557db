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
_DESCRIPTORS = frozenset(
    {
        ("os", name)
        for name in ("fstat", "read", "write", "dup", "dup2", "lseek", "isatty", "fdopen", "sendfile", "readv")
    }
)
VARIABLES = frozenset({"environ", "environb", "getenv"})
_OWN = re.compile(
    r"(?!(AWS|AZURE|GCP|GOOGLE|GITHUB|GITLAB|GH|HF|OPENAI|ANTHROPIC|SSH|HERMES|PYTEST)_)[A-Z][A-Z0-9]+_\w*"
)
"""What a program's own variables begin with."""


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


def is_prefixed(node: ast.expr, folder: Folder) -> bool:
    """Whether it takes nothing but names that begin with a word of its own, as ``APP_``, or with what it was given."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="startswith"), args=[prefix]):
            word = folder.value(prefix)
            return isinstance(prefix, ast.Name) if word is None else bool(_OWN.fullmatch(str(word)))
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


def is_false(node: ast.expr) -> bool:
    """Whether it says false, or nothing, in so many words."""
    return isinstance(node, ast.Constant) and not node.value
