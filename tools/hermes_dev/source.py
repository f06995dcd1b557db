"""Reading the asynchronous classes: what ``hermes_dev.generate`` must know of their source."""

from __future__ import annotations

import ast
import importlib
import inspect
from dataclasses import dataclass
from functools import cache

Function = ast.FunctionDef | ast.AsyncFunctionDef


class CannotTurn(Exception):
    """The source has something that has no blocking form here; the message says what, and where."""


@dataclass(frozen=True)
class Module:
    """A parsed module: where its names come from, and what it defines."""

    name: str
    imports: dict[str, str]
    classes: dict[str, ast.ClassDef]
    functions: dict[str, Function]
    values: set[str]

    def origin(self, name: str) -> str:
        """The statement by which another module gets what ``name`` is in this one."""
        if name in self.imports:
            return self.imports[name]
        if name in self.values or name in self.classes:
            return f"from {self.name} import {name}"
        raise CannotTurn(f"{self.name}: where does {name} come from?")

    def value(self, name: str) -> object:
        """What ``name`` is in this module; it need not be imported at run time."""
        words = self.origin(name).split()
        return getattr(importlib.import_module(words[1]), words[3])

    def class_(self, name: str) -> tuple[Module, ast.ClassDef] | None:
        """The definition of a class of ours that is known here as ``name``, and its module."""
        words = self.origin(name).split()
        if words[0] != "from" or not words[1].startswith("hermes_exec"):
            return None
        home = module(words[1])
        definition = home.classes.get(words[3])
        return None if definition is None else (home, definition)


@cache
def module(name: str) -> Module:
    """Parse a module."""
    tree = ast.parse(inspect.getsource(importlib.import_module(name)))
    imports: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                one = ast.ImportFrom(node.module, [alias], node.level)
                imports.setdefault(alias.asname or alias.name, ast.unparse(one))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                imports.setdefault(alias.asname or alias.name, ast.unparse(ast.Import([alias])))
    values = {
        stmt.targets[0].id
        for stmt in tree.body
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name)
    }
    classes = {stmt.name: stmt for stmt in tree.body if isinstance(stmt, ast.ClassDef)}
    functions = {stmt.name: stmt for stmt in tree.body if isinstance(stmt, Function)}
    return Module(name, imports, classes, functions, values)


def names(node: ast.AST) -> set[str]:
    """The names in an annotation or a default."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def statements(node: Function) -> list[str]:
    """The statements of a function, without its docstring."""
    return [ast.unparse(one) for one in node.body if text_of(one) is None]


def text_of(node: ast.stmt | None) -> str | None:
    """What a docstring says; None for any other statement."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return None


def is_generator(node: Function) -> bool:
    """True when calling it gives an asynchronous generator."""
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))


def resolve_await(home: Module, annotation: ast.expr) -> ast.expr | None:
    """What ``await`` makes of an object whose class has ``__await__``; None for all other classes."""
    if not isinstance(annotation, ast.Name) or annotation.id not in {*home.imports, *home.classes}:
        return None
    found = home.class_(annotation.id)
    for node in found[1].body if found else ():
        if isinstance(node, ast.FunctionDef) and node.name == "__await__":
            if isinstance(node.returns, ast.Subscript) and isinstance(node.returns.slice, ast.Tuple):
                return node.returns.slice.elts[-1]
            raise CannotTurn(f"{home.name}: {annotation.id}.__await__ should return Generator[Any, None, …]")
    return None


def public_attributes(home: Module, init: Function) -> dict[str, tuple[ast.expr, str]]:
    """The public attributes that a constructor sets: their types, and the text below them."""
    given = {arg.arg: arg.annotation for arg in [*init.args.args, *init.args.kwonlyargs]}
    found: dict[str, tuple[ast.expr, str]] = {}
    for node, after in zip(init.body, [*init.body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
            continue
        kind = node.annotation if isinstance(node, ast.AnnAssign) else None
        if kind is None and isinstance(node.value, ast.Name):
            kind = given.get(node.value.id)
        if kind is None:
            raise CannotTurn(f"{home.name}: annotate self.{target.attr}, so that its type is known")
        found[target.attr] = kind, text_of(after) or f"The {target.attr}."
    return found
