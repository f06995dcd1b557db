"""Break a skill on purpose: tests that still pass then have not tested it, or somebody else says that they pass."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from hermes_exec_policies.gate.launch import program

_MOST = 4
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way in which the script is broken."""

    name: str
    source: str
    must_die: bool
    """Whether tests that pass with it are no tests."""
    must_live: bool = False
    """Whether tests that fail with it look at something else than what the skill does."""


def mutants(source: str, function: str) -> list[Mutant]:
    """The script with its function ended at its beginning, or in vain, and with some of what it does turned round.

    Everything outside of the function stays as it is: what a script does on import to the one who judges it, it does
    in a mutant too, and the mutant passes as well.
    """
    tree = ast.parse(source)
    raising = ast.parse("raise RuntimeError").body
    found = [
        Mutant("raises", _emptied(tree, function, raising), must_die=True),
        Mutant("returns nothing", _emptied(tree, function, ast.parse("return None").body), must_die=True),
        Mutant(
            "gives other values of the same types, writes no file and prints nothing (assert what it gives or does)",
            _in_vain(tree, function),
            must_die=True,
        ),
        # The others are written in the same way, so tests that know the text of the skill would tell them by that.
        Mutant("says the same in another layout", ast.unparse(tree), must_die=False, must_live=True),
    ]
    spots = [node for node in ast.walk(_function(tree, function)) if _turned(copy.deepcopy(node)) is not None]
    step = max(1, len(spots) // _MOST)
    for index in range(0, len(spots), step)[:_MOST]:
        other = copy.deepcopy(tree)
        same = [node for node in ast.walk(_function(other, function)) if _turned(copy.deepcopy(node)) is not None]
        what = _turned(same[index])
        line = getattr(spots[index], "lineno", 0)
        found.append(Mutant(f"line {line}: {what}", ast.unparse(other), must_die=False))
    return found


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    return [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ][-1]


def _emptied(tree: ast.Module, name: str, body: list[ast.stmt]) -> str:
    other = copy.deepcopy(tree)
    function = _function(other, name)
    # What it says of itself stays, and its text too, behind what ends it: tests that look at these test nothing.
    described = 1 if ast.get_docstring(function) is not None else 0
    function.body[described:] = body + function.body[described:]
    return ast.unparse(ast.fix_missing_locations(other))


def _in_vain(tree: ast.Module, name: str) -> str:
    """Its function runs, and then gives something else and leaves nothing: tests of types or of names test nothing."""
    other = copy.deepcopy(tree)
    function = _function(other, name)
    described = 1 if ast.get_docstring(function) is not None else 0
    (helper,) = [node for node in ast.parse(program("apart")).body if isinstance(node, ast.ClassDef)]
    entered = ast.withitem(ast.Call(ast.Name("Apart", ast.Load()), [], []), ast.Name("apart_", ast.Store()))
    body = [*function.body[described:], ast.Return(None)]
    function.body[described:] = [helper, ast.With([entered], [_Returns().visit(each) for each in body])]
    return ast.unparse(ast.fix_missing_locations(other))


class _Returns(ast.NodeTransformer):
    """Changes what one function gives, and leaves alone what those in it give."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = node.value or ast.Constant(None)
        other = ast.Attribute(ast.Name("apart_", ast.Load()), "other", ast.Load())
        return ast.Return(ast.Call(other, [value], []))

    def _left(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _left  # noqa: N815  as ast calls them


def _turned(node: ast.AST) -> str | None:
    """Turn one expression round in place and say so; None where there is nothing to turn."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            node.ops = [_COMPARED[type(op)]()]
            return "a comparison is turned round"
        case ast.BinOp(op=op) if type(op) in _COUNTED:
            node.op = _COUNTED[type(op)]()
            return "an operator is another one"
        case ast.Constant(value=bool() as value):
            node.value = not value
            return "true and false are exchanged"
        case ast.Constant(value=int() as value):
            node.value = value + 1
            return "a number is one more"
        case _:
            return None
