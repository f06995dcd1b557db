"""Write ``hermes_exec/sync.py``, the blocking interface, from the source of the asynchronous classes.

There is one implementation: each method that is written here calls the asynchronous one through the portal.
A member without a known blocking form is refused with one line, so that nothing is left out silently.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import hermes_exec
from hermes_dev.place import ROOT
from hermes_dev.source import (
    CannotTurn,
    Function,
    Module,
    is_generator,
    module,
    names,
    public_attributes,
    resolve_await,
    statements,
    text_of,
)
from hermes_dev.wording import GETATTR, HEADER, function, text_for_people

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

FILE = ROOT / "hermes_exec" / "sync.py"
CLASSES = (
    "Terminal", "Session", "Stream", "Files", "Job", "Pty", "Forward", "Orchestrator", "Lease", "Recovered",
)  # fmt: skip
INTERNAL = {"Stream.feed", "Pty.feed", "Pty.check_attached", "Lease.end", "Lease.member"}
"""Public for other parts of the core, but not for people."""
MADE_BY_PEOPLE = {"Orchestrator"}
"""Classes that are called for an object; those of all others are given by something."""
BEGINS = {("Orchestrator", "start"), ("Orchestrator", "__enter__")}
ENDS = {("Terminal", "close"), ("Orchestrator", "close"), ("Orchestrator", "drain")}
"""What is open between them is closed at the exit; terminals begin by ``open``."""
OPENS = "awaitable_context_manager"
"""What marks a coroutine that ``async with`` takes too: awaited, it gives what ``with`` takes."""
ITERATORS = {"AsyncGenerator", "AsyncIterator"}
TURNED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__repr__": "__repr__",
}


def main(arguments: list[str]) -> int:
    """Write the file, or show it with ``--print``."""
    try:
        text = format_text(Writer().text())
    except CannotTurn as error:
        print(f"dev: {error}", file=sys.stderr)
        return 1
    if "--print" in arguments:
        print(text, end="")
    else:
        FILE.write_text(text, encoding="utf-8")
    return 0


def format_text(text: str) -> str:
    """The text as ``./dev fmt`` would leave it."""
    for words in (["check", "--fix-only", "--select=I"], ["format"]):
        argv = [sys.executable, "-I", "-m", "ruff", *words, "--quiet", f"--stdin-filename={FILE}", "-"]
        text = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True, input=text).stdout
    return text


class Writer:
    """Collects the text of the classes, and the imports that their annotations need."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}
        self.constants: set[str] = set()

    def text(self) -> str:
        """The whole file, before it is formatted."""
        classes = [self.class_(name) for name in CLASSES]
        functions = [self.gather(), self.open()]
        asynchronous = [
            f"from {getattr(hermes_exec, name).__module__} import {name} as Async{name}" for name in CLASSES
        ]
        same = ", ".join(name for name in hermes_exec.__all__ if name not in {*CLASSES, "gather", "open"})
        imports = [*asynchronous, *self.imports.values(), f"from hermes_exec import {same}"]
        head = [HEADER, *sorted(self.constants), "if TYPE_CHECKING:"]
        head.append(textwrap.indent("\n".join(imports), "    "))
        return "\n".join([*head, f"__all__ = {hermes_exec.__all__!r}", GETATTR, *classes, *functions])

    def class_(self, name: str) -> str:
        """One blocking class, with what it inherits."""
        cls = getattr(hermes_exec, name)
        members: dict[str, str] = {}
        for base in cls.__mro__:
            if base.__module__.startswith("hermes_exec"):
                home = module(base.__module__)
                members |= self.members(home, home.classes[base.__name__], name) | members
        head = f"class {name}(BlockingProxy):\n" + textwrap.indent(text_for_people(inspect.getdoc(cls)), "    ")
        return "\n".join([head, f"    __slots__ = ()\n    _core: Async{name}", *members.values()])

    def members(self, home: Module, definition: ast.ClassDef, owner: str) -> dict[str, str]:
        """The public members of one class."""
        found: dict[str, str] = {}
        found |= self.fields(home, definition)
        for node in definition.body:
            if not isinstance(node, Function) or f"{owner}.{node.name}" in INTERNAL:
                continue
            if node.name == "__init__":
                if owner in MADE_BY_PEOPLE:
                    found["__init__"] = self.constructor(home, node, owner)
                for name, (kind, text) in public_attributes(home, node).items():
                    if f"{owner}.{name}" not in INTERNAL:
                        found[name] = self.attribute(home, name, kind, text)
            elif not node.name.startswith("_") or node.name in TURNED:
                found[node.name] = self.method(home, node, owner)
            elif node.name.startswith("__"):
                raise CannotTurn(f"{home.name}: {owner}.{node.name} has no blocking form here")
        return found

    def fields(self, home: Module, definition: ast.ClassDef) -> dict[str, str]:
        """The fields of a dataclass."""
        if not any("dataclass" in ast.unparse(one) for one in definition.decorator_list):
            return {}
        found: dict[str, str] = {}
        for node, after in zip(definition.body, [*definition.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                found[name] = self.attribute(home, name, node.annotation, text_of(after) or f"The {name}.")
        return found

    def attribute(self, home: Module, name: str, kind: ast.expr, text: str) -> str:
        """A property for an attribute."""
        shown, wrap = self.shape(home, kind)
        return function("@property\n", name, "self", shown, text, f"return {wrap.format(f'self._core.{name}')}")

    def constructor(self, home: Module, node: Function, owner: str) -> str:
        """How people make one."""
        arguments, passed = self.arguments(home, node)
        core = f"loop_portal.do(lambda: hermes_exec.{owner}({passed}))"
        body = f"loop_portal = portal()\nsuper().__init__(loop_portal, {core})"
        return function("", "__init__", arguments, "None", ast.get_docstring(node), body)

    def method(self, home: Module, node: Function, owner: str) -> str:
        """One method, or property."""
        decorators = [word for one in node.decorator_list if (word := ast.unparse(one)) != OPENS]
        if decorators == ["contextlib.asynccontextmanager"]:
            return self.block(home, node)
        if decorators not in ([], ["property"]):
            raise CannotTurn(f"{home.name}: {owner}.{node.name} is decorated with {decorators}")
        name, core = TURNED.get(node.name, node.name), f"self._core.{node.name}"
        arguments, passed = self.arguments(home, node)
        returns = node.returns or ast.Constant(None)
        awaited = resolve_await(home, returns)
        shown, wrap = self.shape(home, awaited or returns)
        before, after = "", ""
        if decorators:
            value = core
        elif name == "__repr__":
            value = "repr(self._core)"
        elif name == "__next__":
            value = "self._step(self._core)"
        elif name == "__exit__" and statements(node) == ["await self.close()"]:
            value = "self.close()"
        elif shown == "Self" and statements(node) == ["return self"]:
            value = "self"
        elif name in {"close", "__exit__"}:
            value = f"self._end({core}({passed}))"
        elif awaited or (isinstance(node, ast.AsyncFunctionDef) and not is_generator(node)):
            value = f"self._portal.call({core}({passed}))"
        elif is_generator(node):
            value = f"{core}({passed})"
        else:
            value = f"self._portal.do(lambda: {core}({passed}))" if passed else f"self._portal.do({core})"
        if shown == "Self" and value != "self":
            if statements(node)[-1] != "return self":
                raise CannotTurn(f"{home.name}: {owner}.{node.name} gives Self, and not plainly self")
            after = "\nreturn self"
        if (owner, name) in ENDS:
            before = "self._portal.finalizers.unregister(self._core)\n"
        if (owner, name) in BEGINS:
            after = f"\nself._portal.finalizers.register(self._core, self, {f'the {owner.lower()}'!r}){after}"
        body = value if shown == "None" or after else f"return {wrap.format(value)}"
        top = "@property\n" if decorators else ""
        return function(top, name, arguments, shown, ast.get_docstring(node), before + body + after)

    def block(self, home: Module, node: Function) -> str:
        """A method whose result is there for the length of a ``with``."""
        if not isinstance(node.returns, ast.Subscript) or ast.unparse(node.returns.slice) not in CLASSES:
            raise CannotTurn(f"{home.name}: {node.name} should give an AsyncGenerator of a class that is turned")
        given = ast.unparse(node.returns.slice)
        arguments, passed = self.arguments(home, node)
        body = f"return BlockingContextManager(self._portal, self._core.{node.name}({passed}), {given})"
        return function("", node.name, arguments, f"BlockingContextManager[{given}]", ast.get_docstring(node), body)

    def gather(self) -> str:
        """The function ``gather``."""
        home = module("hermes_exec.terminal.gather")
        node = home.functions["gather"]
        arguments, passed = self.arguments(home, node, given={"Terminal"})
        passed = passed.replace("terminals", "unwrap(terminals)", 1)
        body = f"return portal().call(hermes_exec.gather({passed}))"
        returns = ast.unparse(node.returns or ast.Constant(None))
        return textwrap.dedent(function("@check_call\n", "gather", arguments, returns, ast.get_docstring(node), body))

    def open(self) -> str:
        """The function ``open``."""
        home = module("hermes_exec.terminal.opening")
        node = home.functions["open"]
        arguments, passed = self.arguments(home, node)
        body = f"""\
loop_portal = portal()
core = loop_portal.call(hermes_exec.open({passed}))
terminal = Terminal(loop_portal, core)
loop_portal.finalizers.register(core, terminal, core.target)
return terminal"""
        return textwrap.dedent(function("@check_call\n", "open", arguments, "Terminal", ast.get_docstring(node), body))

    def arguments(self, home: Module, node: Function, given: AbstractSet[str] = frozenset()) -> tuple[str, str]:
        """The parameters as they are declared, and as they are passed on; blocking objects of ``given`` may be some."""
        args = node.args
        every = [*args.posonlyargs, *args.args, *filter(None, [args.vararg]), *args.kwonlyargs]
        for arg in [*every, *filter(None, [args.kwarg])]:
            if arg.annotation is not None:
                used = names(arg.annotation)
                if (used - given) & {*CLASSES, *ITERATORS, "AsyncIterable", "Awaitable", "Coroutine"}:
                    raise CannotTurn(f"{home.name}: {node.name}({arg.arg}) takes something asynchronous")
                self.need(home, used - given)
        for default in [*args.defaults, *filter(None, args.kw_defaults)]:
            self.constants |= {home.origin(name) for name in names(default)}
        passed = [arg.arg for arg in [*args.posonlyargs, *args.args] if arg.arg != "self"]
        passed += [f"*{args.vararg.arg}"] if args.vararg else []
        passed += [f"{arg.arg}={arg.arg}" for arg in args.kwonlyargs]
        passed += [f"**{args.kwarg.arg}"] if args.kwarg else []
        return ast.unparse(args), ", ".join(passed)

    def shape(self, home: Module, annotation: ast.expr) -> tuple[str, str]:
        """The blocking form of a type, and the expression that makes it of the asynchronous ``{}``."""
        shown = ast.unparse(annotation)
        used = names(annotation)
        wrapped = used & set(CLASSES)
        if isinstance(annotation, ast.Subscript) and names(annotation.value) & ITERATORS and not wrapped:
            item = annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
            self.need(home, names(item))
            return f"BlockingIterator[{ast.unparse(item)}]", "BlockingIterator(self._portal, {})"
        self.need(home, used)
        if not wrapped:
            return shown, "{}"
        name = wrapped.pop()
        forms = {
            name: f"{name}(self._portal, {{}})",
            f"{name} | None": f"None if (core := {{}}) is None else {name}(self._portal, core)",
            f"list[{name}]": f"[{name}(self._portal, core) for core in {{}}]",
        }
        if shown not in forms:
            raise CannotTurn(f"{home.name}: {shown} has no blocking form here")
        return shown, forms[shown]

    def need(self, home: Module, used: set[str]) -> None:
        """Import what annotations name."""
        for name in used - set(dir(builtins)):
            statement = home.origin(name)
            if name in hermes_exec.__all__:
                known = home.value(name) is getattr(hermes_exec, name)
            else:
                known = self.imports.setdefault(name, statement) == statement
            if not known:
                raise CannotTurn(f"{home.name}: {name} means something else in another module")
