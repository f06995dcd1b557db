"""Examine the syntax tree of Python for things that no skill needs.

A rule refuses only where the tree is certain. Calls of ``subprocess``, ``open`` or ``socket`` are none of the rules'
concern: the sandbox holds them, and the gate observes them while the skill runs.
"""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.audit.destinations import Destinations
from hermes_exec_policies.gate.audit.origins import Origins, find_assignments
from hermes_exec_policies.gate.audit.rules import CODING, DYNAMIC, MODULES, PIPED, UNPICKLED, Rule, load_rules
from hermes_exec_policies.gate.verdict import Finding, advice, functional

if TYPE_CHECKING:
    from collections.abc import Iterator

_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*(?!utf-?8\b|ascii\b|us-ascii\b|latin-?1\b)[-\w.]+", re.IGNORECASE)
"""As PEP 263 has it: the first two lines may say how the bytes are read."""
_PIPE = re.compile(
    r"\b(curl|wget)\b[^\n;]*\|\s*(sudo\s+)?(env\s+)?([\w/]*/)?((ba|z|k|da)?sh|python[\d.]*)\b(?!\.)"
    r"|\b(ba|z|k|da)?sh\s+(-c\s+)?[\"']?(<\(|\$\(|`)\s*(curl|wget)\b"
)
_RUNS = frozenset({"eval", "exec"})
_STARTS = frozenset({"os.system", "os.popen", "subprocess.run", "subprocess.Popen", "subprocess.call",
                     "subprocess.check_call", "subprocess.check_output", "subprocess.getoutput",
                     "subprocess.getstatusoutput", "asyncio.create_subprocess_shell"})  # fmt: skip
_UNPICKLES = frozenset({"pickle.loads", "pickle.load", "_pickle.loads", "dill.loads", "cloudpickle.loads",
                        "pickle.Unpickler"})  # fmt: skip
_DECODES = frozenset({"base64.b64decode", "base64.urlsafe_b64decode", "base64.b85decode", "base64.a85decode",
                      "base64.b32decode", "base64.b16decode", "binascii.unhexlify", "binascii.a2b_base64",
                      "bytes.fromhex", "zlib.decompress", "urllib.request.urlopen", "requests.get",
                      "httpx.get", "codecs.decode"})  # fmt: skip
_RUNNERS = frozenset({"_pytest", "pytest", "unittest", "pluggy", "hermes_exec_policies"})
_ALLOWED_IN_TESTS = frozenset({"audit.modules"})
_DEEP = 8


def pipes_to_shell(text: str) -> bool:
    """Whether a command pipes a download to an interpreter."""
    return _PIPE.search(text) is not None


def check_python(path: str, text: str) -> list[Finding]:
    """Return the findings in one file."""
    for number, first in enumerate(text.split("\n", 2)[:2], 1):
        if _CODING.match(first):
            return [functional(CODING.code, CODING.explain("it declares another encoding"), path, number)]
    try:
        return _Check(path, ast.parse(text, path)).findings()
    except (SyntaxError, ValueError) as error:
        line = (error.lineno or 0) if isinstance(error, SyntaxError) else 0
        said = f"it is not valid Python: {error}"
        if path.startswith(("scripts/", "tests/")):
            return [functional("audit.syntax", said, path, line)]
        return [advice("audit.syntax", said, path, line)]
    except (RecursionError, MemoryError):
        said = "it is nested too deeply to be examined; split the expression"
        return [functional("audit.deep", said, path)]


class _Check:
    """The rules on one file."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self._path = path
        self._tree = tree
        self._tests = path.startswith("tests/")
        self._origins = Origins(tree)
        self._rules = load_rules()
        self._values = find_assignments(tree)
        self._called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        self._bound = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.ClassDef)} | {
            each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)
        }

    def findings(self) -> list[Finding]:
        found = [each for node in ast.walk(self._tree) for each in self._check(node)]
        if not self._tests:
            found += Destinations(self._tree, self._origins).findings(self._path)
        return list(dict.fromkeys(found))

    def _hit(self, rule: Rule, what: str, node: ast.AST) -> Iterator[Finding]:
        if not (self._tests and rule.code in _ALLOWED_IN_TESTS):
            yield functional(rule.code, rule.explain(what), self._path, getattr(node, "lineno", 0))

    def _check(self, node: ast.AST) -> Iterator[Finding]:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield from self._import(alias.name, node)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                for name in (module, *(f"{module}.{alias.name}" for alias in names)):
                    yield from self._import(name, node)
            case ast.Call():
                yield from self._call(node)
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                for target in targets:
                    yield from self._replace(target, node)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                yield from self._replace(target, node)
            case ast.FunctionDef(name=name) if name in self._rules["hooks"]:
                yield from self._hit(self._rules["hooks"][name], f"it defines {name}", node)
            case ast.Subscript(value=value, slice=key, ctx=ast.Load()) if self._origins.of(value) == "sys.modules":
                yield from self._module(key, node)
            case ast.Constant(value=str(text)) if text in self._rules["texts"]:
                yield from self._hit(self._rules["texts"][text], f"it looks for {text}", node)
            case _:
                pass
        if isinstance(node, ast.Attribute | ast.Name):
            yield from self._reference(node)

    def _import(self, name: str, node: ast.AST) -> Iterator[Finding]:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            if (rule := self._rules["imports"].get(".".join(parts[:depth]))) is not None:
                yield from self._hit(rule, f"it imports {name}", node)
                return

    def _reference(self, node: ast.Attribute | ast.Name) -> Iterator[Finding]:
        name = self._origins.of(node)
        if (rule := self._rules["calls"].get(name)) is not None and not self._is_type_test(node):
            yield from self._hit(rule, f"it uses {name}", node)
        elif isinstance(node, ast.Attribute):
            if (rule := self._rules["names"].get(node.attr)) is not None:
                yield from self._hit(rule, f"it uses .{node.attr}", node)
            elif node.attr == "__subclasses__" and _climbs(node.value):
                yield from self._hit(self._rules["names"]["__globals__"], "it walks from object to all classes", node)
        if self._is_builtin(node, _RUNS) and id(node) not in self._called:
            yield from self._hit(DYNAMIC, "it passes on eval or exec", node)

    def _is_type_test(self, node: ast.expr) -> bool:
        """Return whether a name is not called: ``isinstance(value, types.FunctionType)`` creates no function."""
        return id(node) not in self._called and self._origins.of(node).startswith("types.")

    def _call(self, node: ast.Call) -> Iterator[Finding]:
        name = self._origins.of(node.func)
        if self._is_builtin(node.func, _RUNS):
            if node.args and not self._is_known(node.args[0]):
                yield from self._hit(DYNAMIC, f"it runs text as code: {ast.unparse(node.func)}", node)
        elif self._is_builtin(node.func, {"__import__"}) and node.args and not self._is_known(node.args[0]):
            yield from self._hit(DYNAMIC, "it imports a module by a computed name", node)
        elif self._is_builtin(node.func, {"setattr", "delattr"}) and node.args:
            owner = self._origins.of(node.args[0])
            if (rule := self._rules["assigned"].get(owner)) is not None:
                yield from self._hit(rule, f"it replaces attributes of {owner}", node)
        elif self._is_builtin(node.func, {"getattr", "hasattr"}) and len(node.args) > 1:
            which = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            if isinstance(which, str) and (rule := self._rules["names"].get(which)) is not None:
                yield from self._hit(rule, f"it uses .{which}", node)
        elif name in _UNPICKLES and any(self._is_decoded(each, _DEEP) for each in node.args):
            yield from self._hit(UNPICKLED, "it unpickles bytes that were decoded or downloaded", node)
        elif name in _STARTS and any(map(pipes_to_shell, self._texts(node))):
            yield from self._hit(PIPED, f"it pipes a download to a shell in {name}", node)
        elif name in {"sys.modules.get", "sys.modules.pop", "sys.modules.setdefault"} and node.args:
            yield from self._module(node.args[0], node)

    def _replace(self, target: ast.expr, node: ast.AST) -> Iterator[Finding]:
        match target:
            case ast.Attribute(value=value) if (owner := self._origins.of(value)) in self._rules["assigned"]:
                yield from self._hit(self._rules["assigned"][owner], f"it replaces {owner}.{target.attr}", node)
            case ast.Attribute(value=value) if self._origins.of(value).startswith(("_pytest.", "unittest.")):
                yield from self._hit(self._rules["assigned"]["pytest"], "it replaces a part of the test runner", node)
            case ast.Subscript(value=value, slice=key) if self._origins.of(value) == "sys.modules":
                yield from self._module(key, node, replaces=True)
            case ast.Subscript(value=ast.Name(id="__builtins__")):
                yield from self._hit(self._rules["assigned"]["builtins"], "it replaces a builtin", node)
            case _:
                pass

    def _module(self, key: ast.expr, node: ast.AST, *, replaces: bool = False) -> Iterator[Finding]:
        named = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        if named.partition(".")[0] in _RUNNERS:
            yield from self._hit(self._rules["assigned"]["pytest"], f"it uses {named} of sys.modules", node)
        elif replaces and named in sys.stdlib_module_names:
            yield from self._hit(MODULES, f"it replaces the module {named}", node)

    def _is_builtin(self, node: ast.expr, names: set[str] | frozenset[str]) -> bool:
        if isinstance(node, ast.Name) and not self._origins.of(node):
            return node.id in names and node.id not in self._bound
        owner, _, name = self._origins.of(node).rpartition(".")
        return owner == "builtins" and name in names

    def _is_known(self, node: ast.expr) -> bool:
        """Return whether the text stands in this file as it is."""
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name) if name in self._values:
                return isinstance(self._values[name], ast.Constant)
            case ast.Call(func=ast.Name(id="compile"), args=[first, *_]):
                return self._is_known(first)
            case _:
                return False

    def _is_decoded(self, node: ast.expr, depth: int) -> bool:
        for each in ast.walk(node):
            if isinstance(each, ast.Call) and (
                self._origins.of(each.func) in _DECODES or ast.unparse(each.func) in _DECODES
            ):
                return True
            known = self._values.get(each.id) if isinstance(each, ast.Name) and depth else None
            if known is not None and self._is_decoded(known, depth - 1):
                return True
        return False

    def _texts(self, node: ast.Call) -> Iterator[str]:
        for argument in node.args:
            known = self._values.get(argument.id, argument) if isinstance(argument, ast.Name) else argument
            parts = [each.value for each in ast.walk(known) if isinstance(each, ast.Constant)]
            yield " ".join(each for each in parts if isinstance(each, str))


def _climbs(node: ast.expr) -> bool:
    """Return whether an expression leads to the class that all others come from."""
    return (isinstance(node, ast.Name) and node.id == "object") or any(
        isinstance(each, ast.Attribute) and each.attr in {"__base__", "__bases__", "__mro__"} for each in ast.walk(node)
    )
