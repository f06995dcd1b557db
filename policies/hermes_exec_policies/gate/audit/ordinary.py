"""What honest code has of things that other code hides with: cleaning up, telling where it is, asking what there is."""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_policies.gate.audit.origins import Origins

STARTS = re.compile(
    r"(os|posix)\.(system|popen|exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?)|subprocess\.[a-zP]\w+|pty\.spawn"
    r"|asyncio\.(subprocess\.)?create_subprocess_(exec|shell)"
)
"""The full names of what starts programs."""
_ENDS = re.compile(r"(os|posix)\.(_exit|abort|kill\w*|write)|signal\.\w+|faulthandler\.\w+")
_SHOWS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log", "print"})
_WHERE = frozenset({"function", "lineno", "f_lineno", "co_name"})
_LOADED = frozenset(
    {"numpy", "pandas", "polars", "scipy", "matplotlib", "matplotlib.pyplot", "IPython", "ipykernel", "google.colab",
     "torch", "tensorflow", "tqdm", "rich", "uvloop", "PIL", "yaml"}
)  # fmt: skip
"""Libraries of which a program asks whether they are loaded; nothing that runs tests is among them."""
_IMPORT_PARTS = frozenset({"importlib", "importlib.util", "importlib.metadata", "importlib.resources"})
_IMPORTS_NOTHING = frozenset(
    {"importlib.metadata.version", "importlib.metadata.PackageNotFoundError", "importlib.resources.files",
     "importlib.resources.as_file"}
)  # fmt: skip
_IMPORT_BY_NAME = frozenset({"importlib.import_module", "importlib.util.find_spec"})
_MODULE = re.compile(r"\.?[A-Za-z]\w*(\.\w*)*")
_LOOKED_AT_BY = frozenset({"hasattr", "getattr", "setattr", "delattr", "vars", "dir", "isinstance", "print", "type"})
"""What has rules of its own, or tells nothing that could be called."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Ordinary:
    """Says of the uses in one file whether they are of the kinds that honest code has."""

    def __init__(self, tree: ast.Module, origins: Origins, *, reserved: frozenset[str] = frozenset()) -> None:
        """``reserved`` are modules that are never imported by a word."""
        self._origins = origins
        self._reserved = reserved
        self._parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._functions: dict[str, list[_Function]] = {}
        self._loads: dict[str, list[ast.Name]] = {}
        for node in ast.walk(tree):
            if isinstance(node, _Function):
                self._functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._loads.setdefault(node.id, []).append(node)
        self._is_itself = not any(
            (isinstance(node, ast.Name) and node.id == "__name__" and not isinstance(node.ctx, ast.Load))
            or (isinstance(node, ast.arg) and node.arg == "__name__")
            for node in ast.walk(tree)
        )
        """Whether ``__name__`` is what the interpreter says."""
        uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)]
        self._starts = any(STARTS.fullmatch(origins.of(each)) for each in uses)
        self.imports = all(self._imports(each) for each in uses if origins.of(each).partition(".")[0] == "importlib")
        """Whether it uses ``importlib`` for nothing but what an ``import`` or a look at data does."""

    def is_one(self, node: ast.expr) -> bool:
        """Whether this use of what the audit refuses is an ordinary one."""
        match self._origins.of(node):
            case "atexit.register":
                return self._cleans(node)
            case "inspect.stack" | "inspect.currentframe":
                parent = self._parents.get(id(node))
                return isinstance(parent, ast.Call) and parent.func is node and self._tells(parent, named=False)
            case "sys.modules":
                return self._asks(node)
            case _:
                return False

    def is_handed_on(self, node: ast.expr) -> bool:
        """Whether it is given to somebody as a value, so that what is taken of it is not seen any more."""
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Call):
            return parent.func is not node and not (
                isinstance(parent.func, ast.Name) and parent.func.id in _LOOKED_AT_BY
            )
        return not isinstance(parent, ast.Attribute) and not (
            isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name)
        )

    def _cleans(self, node: ast.expr) -> bool:
        """Whether what is called at the end starts no program and ends nothing by force."""
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Call) and parent.func is node and parent.args:
            return self._quiet(parent.args[0], set())
        return isinstance(parent, _Function) and node in parent.decorator_list and self._quiet(parent, set())

    def _quiet(self, what: ast.AST, seen: set[str]) -> bool:
        if isinstance(what, ast.Name | ast.Attribute):
            name = what.id if isinstance(what, ast.Name) else what.attr
            origin = self._origins.of(what)
            if STARTS.fullmatch(origin) or _ENDS.fullmatch(origin):
                return False
            if name in seen:
                return True
            seen.add(name)
            found = self._functions.get(name, [])
            if not (origin or found or isinstance(what, ast.Attribute)) and self._starts:
                return False  # a variable, which may stand for what starts a program
            return all(self._quiet(each, seen) for each in found)
        if not isinstance(what, _Function | ast.Lambda | ast.Call):
            return False  # an element of something, which may be anything
        return all(self._quiet(each, seen) for each in ast.walk(what) if isinstance(each, ast.Name | ast.Attribute))

    def _tells(self, node: ast.expr, *, named: bool) -> bool:
        """Whether of a frame nothing but a function's name or a line is taken, and only to be printed or logged."""
        parent = self._parents.get(id(node))
        match parent:
            case ast.Attribute(attr=name):
                return self._tells(parent, named=named or name in _WHERE)
            case ast.Subscript(value=value) if value is node:
                return self._tells(parent, named=named)
            case ast.JoinedStr() | ast.FormattedValue() | ast.Tuple():
                return named and self._tells(parent, named=True)
            case ast.BinOp(op=ast.Mod() | ast.Add()):
                return named and self._tells(parent, named=True)
            case ast.Assign(targets=[ast.Name(id=name)]):
                return all(self._tells(each, named=named) for each in self._loads.get(name, []))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                method = isinstance(parent.func, ast.Attribute)
                own = [isinstance(self._parents.get(id(each)), ast.ClassDef) for each in self._functions.get(name, [])]
                return named and parent.func is not node and name in _SHOWS and method not in own
            case _:
                return False

    def _asks(self, node: ast.expr) -> bool:
        match self._parents.get(id(node)):
            case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In() | ast.NotIn()]):
                return name in _LOADED
            case _:
                return False

    def _imports(self, node: ast.expr) -> bool:
        name = self._origins.of(node)
        parent = self._parents.get(id(node))
        if name in _IMPORT_PARTS:
            return isinstance(parent, ast.Attribute)
        if name in _IMPORT_BY_NAME:
            match parent:
                case ast.Call(
                    func=function, args=[ast.JoinedStr(values=[ast.Constant(value="."), *_]), ast.Name(id="__name__")]
                ) if function is node:
                    return self._is_itself  # below its own package, which is looked at
                case ast.Call(func=function, args=[ast.Constant(value=str(word)), *_]) if function is node:
                    return self._is_others(word)
                case ast.Call(func=function, args=[ast.JoinedStr(values=[ast.Constant(value=str(word)), *_]), *_]) if (
                    function is node
                ):
                    return "." in word[1:] and self._is_others(word)
                case _:
                    return False
        return name in _IMPORTS_NOTHING

    def _is_others(self, word: str) -> bool:
        """Whether a module's name says that it is neither Python's own nor one that nobody imports by a word."""
        first = word.partition(".")[0]
        known = first in sys.stdlib_module_names or first in self._reserved
        return _MODULE.fullmatch(word) is not None and not known
