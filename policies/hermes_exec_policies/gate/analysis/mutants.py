"""Mutants of a skill's script, which its tests must notice.

If the tests of a skill pass although it was broken on purpose, they do not test it, or their outcomes are forged.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


_MOST = {"argument": 6, "write": 6, "literal": 6, "operator": 4}
"""The most mutants of each kind."""
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip
_WRITERS = frozenset({
    "write", "writelines", "writerow", "writerows", "writeheader", "write_text", "write_bytes", "writestr", "dump",
    "to_csv", "to_json", "to_excel", "save", "savefig", "copy2", "copyfile", "copyfileobj",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed version of the skill's script."""

    name: str
    source: str
    must_die: bool
    """Whether the skill is refused if its tests pass with this mutant."""
    must_live: bool = False
    """Whether the skill is refused if its tests fail with this mutant: they would test the text, not the behavior."""
    kind: str = ""
    """The kind of a small mutant: ``argument``, ``write``, ``literal`` or ``operator``."""
    argument: str = ""
    """The argument that it ignores."""


def make_mutants(source: str, function: str) -> list[Mutant]:
    """Create mutants whose function ends at once or has no effect, and one that differs only in layout.

    Code outside of the function is unchanged: a script that forges test outcomes on import does so in a mutant, too,
    and is recognized because the mutant passes.
    """
    tree = ast.parse(source)
    raising = ast.parse("raise RuntimeError").body
    return [
        Mutant("raises", _prepend(tree, function, raising), must_die=True),
        Mutant("returns nothing", _prepend(tree, function, ast.parse("return None").body), must_die=True),
        Mutant(
            "gives other values of the same types, writes no file and prints nothing (assert what it gives or does)",
            _undo_effects(tree, function),
            must_die=True,
        ),
        # The others have this layout, too, so tests that compare the skill's text would fail for that reason alone.
        Mutant("says the same in another layout", ast.unparse(tree), must_die=False, must_live=True),
    ]


def make_small_mutants(source: str, function: str) -> list[Mutant]:
    """Create mutants with one change each in the function or in functions that it calls: some of each kind."""
    tree = ast.parse(source)
    found = [
        Mutant(
            f"the argument {name} is ignored",
            _ignore_argument(tree, function, name),
            must_die=False,
            kind="argument",
            argument=name,
        )
        for name in _list_required(_function(tree, function))[: _MOST["argument"]]
    ]
    for kind, change in _CHANGES.items():
        spots = [node for node in reachable_nodes(tree, function) if change(copy.copy(node)) is not None]
        most = _MOST[kind]
        for index in sorted({number * len(spots) // most for number in range(most)} if spots else ()):
            other = copy.deepcopy(tree)
            same = [node for node in reachable_nodes(other, function) if change(copy.copy(node)) is not None]
            name = f"line {getattr(spots[index], 'lineno', 0)}: {change(same[index])}"
            found.append(Mutant(name, ast.unparse(ast.fix_missing_locations(other)), must_die=False, kind=kind))
    return found


def freeze_result(source: str, function: str) -> Mutant | None:
    """Create a mutant whose function returns its first result again in each later call; None if it is a coroutine.

    Tests that notice it have seen two different results.
    """
    tree = ast.parse(source)
    if isinstance(_function(tree, function), ast.AsyncFunctionDef):
        return None
    again = "lambda *args, **named: (seen.append(call(*args, **named)), seen[0])[1]"
    tree.body += ast.parse(f"{function} = (lambda call, seen: {again})({function}, [])").body
    return Mutant("returns its first result again", ast.unparse(tree), must_die=False)


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    return [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ][-1]


def _prepend(tree: ast.Module, name: str, body: list[ast.stmt]) -> str:
    other = copy.deepcopy(tree)
    function = _function(other, name)
    # The docstring stays, and so does the body, after the new statement: tests of these alone test nothing.
    described = 1 if ast.get_docstring(function) is not None else 0
    function.body[described:] = body + function.body[described:]
    return ast.unparse(ast.fix_missing_locations(other))


def _undo_effects(tree: ast.Module, name: str) -> str:
    """Let the function run, then return another value and undo its files; tests of types or names alone pass."""
    other = copy.deepcopy(tree)
    function = _function(other, name)
    described = 1 if ast.get_docstring(function) is not None else 0
    (helper,) = [node for node in ast.parse(_read_helper()).body if isinstance(node, ast.ClassDef)]
    entered = ast.withitem(ast.Call(ast.Name("Apart", ast.Load()), [], []), ast.Name("apart_", ast.Store()))
    body = [*function.body[described:], ast.Return(None)]
    function.body[described:] = [helper, ast.With([entered], [_Returns().visit(each) for each in body])]
    return ast.unparse(ast.fix_missing_locations(other))


def _read_helper() -> str:
    return files("hermes_exec_policies.gate.inside").joinpath("apart.py").read_text("utf-8")


class _Returns(ast.NodeTransformer):
    """Changes the values that a function returns, but not those of nested functions."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = node.value or ast.Constant(None)
        other = ast.Attribute(ast.Name("apart_", ast.Load()), "other", ast.Load())
        return ast.Return(ast.Call(other, [value], []))

    def _leave(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave  # noqa: N815  as ast calls them


def _list_required(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the required arguments; the optional ones may not matter to the task."""
    taken = function.args
    plain = [*taken.posonlyargs, *taken.args]
    named = [each for each, value in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if value is None]
    return [each.arg for each in (*plain[: len(plain) - len(taken.defaults)], *named)]


def _ignore_argument(tree: ast.Module, function: str, name: str) -> str:
    """Replace an argument with a fixed value of its type."""
    return _prepend(
        tree, function, ast.parse(f"{name} = (not {name}) if {name} in (True, False) else type({name})()").body
    )


def reachable_nodes(tree: ast.Module, name: str) -> list[ast.AST]:
    """Return the nodes of a function and of names of its module that it uses; no annotations, docstrings or errors."""
    defined: dict[str, ast.AST] = {}
    for each in tree.body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined[each.name] = each
            case ast.Assign(targets=[ast.Name(id=constant)]) | ast.AnnAssign(target=ast.Name(id=constant)):
                defined[constant] = each
            case _:
                pass
    found: list[ast.AST] = []
    waiting, known = [name], {name}
    while waiting:
        nodes = list(_walk(defined[waiting.pop()]))
        found += nodes
        called = {each.id for each in nodes if isinstance(each, ast.Name)} & defined.keys() - known
        known |= called
        waiting += sorted(called)
    return found


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "format_spec"}:
            continue
        for child in [*value] if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]  ast
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.Assert) and not is_docstring(child):
                yield child
                yield from _walk(child)


def is_docstring(node: ast.AST) -> bool:
    """Return whether a node is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _omit_write(node: ast.AST) -> str | None:
    match node:
        case ast.Expr(value=ast.Call() as call) if _writes(call):
            said = ast.unparse(call.func)
            node.value = ast.Constant(value=None)
            return f"{said[:60]}(…) is left out"
        case _:
            return None


def _writes(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=stream) if _is_stream(stream):
            return False
        case ast.Attribute(attr=name):
            return name in _WRITERS
        case ast.Name(id="print"):
            return any(each.arg == "file" and not _is_stream(each.value) for each in call.keywords)
        case _:
            return False


def _is_stream(node: ast.expr) -> bool:
    """Return whether a node is ``sys.stdout`` or ``sys.stderr``, whose text is a message and no file."""
    return isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"}


def _change_literal(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=bool() as value):
            node.value = not value
            return "true and false are exchanged"
        case ast.Constant(value=int() | float() as value):
            node.value = value + 1
            return f"{value} is {value + 1}"
        case ast.Constant(value=str() as value):
            node.value = value + "?"
            return f"{value[:30]!r} is another text"
        case _:
            return None


def _invert(node: ast.AST) -> str | None:
    """Invert one expression in place, and return a description; None if it cannot be inverted."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            node.ops = [_COMPARED[type(op)]()]
            return "a comparison is turned round"
        case ast.BinOp(op=op) if type(op) in _COUNTED:
            node.op = _COUNTED[type(op)]()
            return "an operator is another one"
        case _:
            return None


_CHANGES = {"write": _omit_write, "literal": _change_literal, "operator": _invert}
