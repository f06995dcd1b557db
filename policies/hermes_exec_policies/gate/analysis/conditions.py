"""A copy of a skill's script that records its conditions.

A function may be right for the arguments of its cases and wrong for others. So a copy of the script reports which way
each of its conditions goes, and which of its blocks run. Each *way* (a condition that is true or false, a block that
runs) which leads to a result and which no case takes is a part of the function that is unchecked.
"""

from __future__ import annotations

import ast
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.analysis.mutants import is_docstring, reachable_nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


RECORDER = """
def MARK_seen(number, value, seen_=set()):
    try:
        ways = {bool(value)}
    except Exception:
        try:
            ways = set(map(bool, getattr(value, 'to_numpy', lambda: value)().ravel().tolist()))
        except Exception:
            return value
    for way in ways:
        if (number, way) not in seen_:
            seen_.add((number, way))
            import os
            os.write(2, b'\\nMARK %d %d\\n' % (number, way))
    return value


def MARK_get(number, get, key, default):
    found = get(key, default)
    MARK_seen(number, found is default)
    return found


def MARK_pick(number, pick, one, other):
    found = pick(one, other)
    MARK_seen(number, found is one)
    return found


def MARK_join(number, *parts):
    joined = {}
    replaced = False
    for part in parts:
        replaced = replaced or any(key in joined for key in part)
        joined.update(part)
    MARK_seen(number, replaced)
    return joined
"""
"""Functions of the copy. Each has a random name, so that a skill can neither replace them nor print their reports."""
CALL = "HXCALL"
_SHOWN = 200
"""The most characters of arguments that are quoted."""
_CONTINUED = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
"""Statements after which it is not known that the next one runs."""
_LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)
Way = tuple[int, bool]


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A script that reports on standard error which way each of its conditions goes."""

    source: str
    mark: str
    """The first word of each report."""
    lines: Mapping[int, int]
    """The line of each condition, by its number."""
    ways: frozenset[Way]
    """The ways that calls with known results have to take: all but those that lead to an error, or cannot be taken."""
    blocks: frozenset[int]
    """The numbers of those that are not a condition, but a part of the script that runs."""

    def read_outcomes(self, log: str) -> dict[int, frozenset[Way]]:
        """Return the ways that each call of a run reported, by the call's number."""
        found: dict[int, set[Way]] = {}
        call = -1
        for line in log.splitlines():
            mark, *words = line.split(" ")
            if not all(each.isdecimal() for each in words):
                continue
            if mark == CALL and len(words) == 1:
                call = int(words[0])
            elif mark == self.mark and len(words) == 2:
                found.setdefault(call, set()).add((int(words[0]), words[1] == "1"))
        return {number: frozenset(seen) for number, seen in found.items()}


def instrument(source: str, function: str) -> Instrumented:
    """Return the script with a recorder around each condition of the function, and of functions that it calls."""
    tree = ast.parse(source)
    chosen = {id(node) for node in reachable_nodes(tree, function)}
    mark = f"hx_{secrets.token_hex(8)}"
    recorder = _Recorder(chosen, mark, errors_end=not any(map(_swallows_errors, ast.walk(tree))))
    changed = recorder.visit(tree)
    place = next(
        (number for number, node in enumerate(changed.body) if not _stays_first(node, number)), len(changed.body)
    )
    changed.body[place:place] = ast.parse(RECORDER.replace("MARK", mark)).body
    text = ast.unparse(ast.fix_missing_locations(changed))
    return Instrumented(text, mark, recorder.lines, frozenset(recorder.ways), frozenset(recorder.blocks))


def record_conditions(source: str, function: str) -> tuple[str, dict[str, Any]]:
    """Return the text of the script with recorders, and what `find_unchecked` has to know of them, as plain values."""
    found = instrument(source, function)
    known = {"mark": found.mark, "lines": [*found.lines.items()], "ways": [*found.ways], "blocks": [*found.blocks]}
    return found.source, known


def find_unchecked(recorded: dict[str, Any], log: str, outside: list[int], results: list[tuple[int, Any]]) -> str:
    """Describe the first way to a result that no case from outside takes; empty if there is none.

    Args:
        recorded: of `record_conditions`.
        log: of the run in which the script was called.
        outside: the numbers of the calls whose results a case from outside checks.
        results: the numbers and the arguments of the calls that had results.
    """
    found = Instrumented(
        source="",
        mark=recorded["mark"],
        lines=dict(recorded["lines"]),
        ways=frozenset((number, way) for number, way in recorded["ways"]),
        blocks=frozenset(recorded["blocks"]),
    )
    outcomes = found.read_outcomes(log)
    seen = frozenset[Way]().union(*(outcomes.get(number, ()) for number in outside))
    reached = {way: arguments for number, arguments in results for way in outcomes.get(number, frozenset[Way]()) - seen}
    return _describe_unchecked(found, found.ways - seen, reached)


def _describe_unchecked(recorded: Instrumented, left: Collection[Way], reached: Mapping[Way, Any]) -> str:
    """Describe the first way that no case from outside takes; empty if there is none."""
    for number, way in sorted({*left, *reached}, key=lambda each: (each not in reached, recorded.lines[each[0]], each)):
        line = recorded.lines[number]
        said = (
            f"no case runs line {line}"
            if number in recorded.blocks
            else f"no case has the condition of line {line} {str(way).lower()}"
        )
        if (number, way) not in reached:
            return f"{said}, and no arguments that were tried"
        return f"{said}, as {json.dumps(reached[number, way], ensure_ascii=False)[:_SHOWN]} has"
    return ""


def _stays_first(node: ast.stmt, number: int) -> bool:
    """Whether a statement must stay at the beginning of a module: its docstring, and imports from the future."""
    return (number == 0 and is_docstring(node)) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _swallows_errors(node: ast.AST) -> bool:
    """Whether a node may turn an error into a result: a handler, a ``finally`` that returns, a context manager."""
    match node:
        case ast.Try(handlers=handlers, finalbody=block) | ast.TryStar(handlers=handlers, finalbody=block):
            leaves = any(isinstance(each, _LEAVES) for statement in block for each in ast.walk(statement))
            return leaves or not all(_is_raising(each.body) for each in handlers)
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
            return True
        case ast.FunctionDef(name="__exit__") | ast.AsyncFunctionDef(name="__aexit__"):
            return True
        case _:
            return False


def _is_raising(block: Sequence[ast.stmt]) -> bool:
    """Whether a block ends with an error in any case."""
    return isinstance(block[-1] if block else None, ast.Raise) and not any(
        isinstance(each, _LEAVES) for statement in block for each in ast.walk(statement)
    )


class _Recorder(ast.NodeTransformer):
    def __init__(self, chosen: set[int], mark: str, *, errors_end: bool) -> None:
        self._chosen = chosen
        self._mark = mark
        self._errors_end = errors_end
        self._recorded: dict[int, int] = {}
        self._functions = 0
        self.lines: dict[int, int] = {}
        self.blocks: set[int] = set()
        self.ways: set[Way] = set()

    def generic_visit(self, node: ast.AST) -> ast.AST:
        is_chosen = id(node) in self._chosen
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        self._functions += is_function
        visited = super().generic_visit(node)
        self._functions -= is_function
        if not isinstance(visited, ast.Module | ast.ClassDef):
            self._record_blocks(visited)
        if not is_chosen:
            return visited
        changed = self._record_node(visited)
        self._chosen.add(id(changed))
        return changed

    def _record_node(self, node: ast.AST) -> ast.AST:
        match node:
            case ast.Compare():
                return self._record(node)
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                node.test = self._record(test)
            case ast.BoolOp(values=[*values, last]):
                node.values = [*map(self._record, values), last]
            case ast.comprehension(ifs=conditions, iter=source):
                node.ifs = [*map(self._record, conditions), self._enter(source)]
            case ast.Lambda(body=body):
                node.body = ast.IfExp(self._enter(body), body, ast.Constant(None))
            case ast.Try(handlers=[_, *_]) | ast.TryStar(handlers=[_, *_]):
                self._record_handlers(node)
            case ast.With(items=[ast.withitem(ast.Call(func=called, args=[*kinds], keywords=[]), None)], body=body):
                if ast.unparse(called).rpartition(".")[2] == "suppress":
                    handler = ast.ExceptHandler(ast.Tuple(kinds, ast.Load()), None, [ast.Pass()], lineno=node.lineno)
                    other = ast.Try(body, [handler], [], [], lineno=node.lineno)
                    self._record_handlers(other)
                    return other
            case ast.Dict(keys=keys, values=[_, _, *_]) if self._functions and not all(map(_is_fixed, keys)):
                return self._record_display(node)
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[_, _], keywords=[]):
                return node if _finds_data(node) else self._call("get", self._number(node), node.func, *node.args)
            case ast.Call(func=ast.Name(id="min" | "max"), args=[one, other], keywords=[]):
                starred = isinstance(one, ast.Starred) or isinstance(other, ast.Starred)
                return node if starred else self._call("pick", self._number(node), node.func, one, other)
            case _:
                pass
        return node

    def _number(self, node: ast.AST, *ways: bool) -> int:
        number = len(self.lines)
        self.lines[number] = getattr(node, "lineno", 0)
        self.ways |= {(number, way) for way in ways or (True, False)}
        return number

    def _call(self, helper: str, number: int, *arguments: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(f"{self._mark}_{helper}", ast.Load()), [ast.Constant(number), *arguments], [])

    def _record(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant) or id(node) in self._recorded:
            return node
        number = self._number(node)
        call = self._call("seen", number, node)
        self._recorded[id(call)] = number
        return call

    def _enter(self, node: ast.AST) -> ast.Call:
        """Return a report that a part of the script runs."""
        number = self._number(node, True)
        self.blocks.add(number)
        return self._call("seen", number, ast.Constant(value=True))

    def _record_blocks(self, node: ast.AST) -> None:
        """Report blocks that run without a condition of their own, and drop the ways that lead to an error."""
        head = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.For | ast.AsyncFor | ast.match_case)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, self._record_block(block, enters=head))  # pyright: ignore[reportUnknownArgumentType]  ast

    def _record_block(self, block: list[ast.stmt], *, enters: bool) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for index, statement in enumerate(block):
            after = block[index + 1 :]
            if id(statement) in self._chosen:
                if enters and not (self._errors_end and _is_raising(block[index:])):
                    found.append(ast.Expr(self._enter(statement)))
                enters = False
            enters = enters or isinstance(statement, _CONTINUED)
            match statement:
                case ast.If() if self._errors_end:
                    self._drop_errors(statement, after)
                case ast.Match(cases=[*_, last]) if not (self._errors_end and _is_raising(after)):
                    if id(statement) in self._chosen and (last.guard or not _is_catching(last.pattern)):
                        none = ast.match_case(ast.MatchAs(), None, [ast.Expr(self._enter(statement))])
                        statement.cases.append(none)
                case _:
                    pass
            found.append(statement)
        return found

    def _drop_errors(self, node: ast.If, after: list[ast.stmt]) -> None:
        """Drop the ways of a condition, and of its parts, that lead to an error: no case can have a result of them."""
        if _is_raising(node.body):
            self._drop(node.test, way=True)
        if _is_raising(node.orelse or after):
            self._drop(node.test, way=False)
        match node.orelse:
            case [ast.If() as inner]:
                self._drop_errors(inner, after)
            case _:
                pass

    def _drop(self, test: ast.expr, *, way: bool) -> None:
        if (number := self._recorded.get(id(test))) is not None and isinstance(test, ast.Call):
            self.ways.discard((number, way))
            test = test.args[1]
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                self._drop(inner, way=not way)
            case ast.Call(func=ast.Name(id="any" | "all" as name), args=[ast.GeneratorExp(elt=part)]):
                if (name == "any") is way:
                    self._drop(part, way=way)
            case ast.BoolOp(op=op, values=values):
                # One true part of an `or` decides it; of an `and` only the last part, whose others are true then.
                for each in values if isinstance(op, ast.Or) is way else values[-1:]:
                    self._drop(each, way=way)
            case _:
                pass

    def _record_handlers(self, node: ast.Try | ast.TryStar) -> None:
        """Record for each handler of a ``try`` whether it is entered, or the body completes."""
        passed: list[ast.expr] = []
        for handler in node.handlers:
            number = self._number(handler)
            if self._errors_end and _is_raising(handler.body):
                self.ways.discard((number, True))
            entered, completed = (self._call("seen", number, ast.Constant(value=way)) for way in (True, False))
            handler.body = [ast.Expr(entered), *handler.body]
            passed.append(completed)
        body = _Completions(passed).visit(ast.Module(node.body, [])).body
        node.body = [*body, *map(ast.Expr, passed)]

    def _record_display(self, node: ast.Dict) -> ast.Call:
        """Record whether a later entry of a dict display replaces an earlier one."""
        parts = [
            value if key is None else ast.Dict([key], [value])
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return self._call("join", self._number(node), *parts)


def _is_fixed(key: ast.expr | None) -> bool:
    """Whether a key is written in the script, so that it does not depend on arguments."""
    match key:
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.Tuple(elts=parts):
            return all(map(_is_fixed, parts))
        case _:
            return False


def _is_catching(pattern: ast.pattern) -> bool:
    """Whether a pattern matches everything."""
    match pattern:
        case ast.MatchAs(pattern=None):
            return True
        case _:
            return False


class _Completions(ast.NodeTransformer):
    """Inserts expressions where a body is left without an error before its end, but not in nested functions."""

    def __init__(self, expressions: list[ast.expr]) -> None:
        self._expressions = expressions
        self._loops = 0

    def visit_Return(self, node: ast.Return) -> ast.Return:
        parts = ast.Tuple([node.value or ast.Constant(None), *self._expressions], ast.Load())
        return ast.Return(ast.Subscript(parts, ast.Constant(0), ast.Load()))

    def _leave_loop(self, node: ast.stmt) -> list[ast.stmt]:
        return [node] if self._loops else [*map(ast.Expr, self._expressions), node]

    def _enter_loop(self, node: ast.AST) -> ast.AST:
        self._loops += 1
        visited = self.generic_visit(node)
        self._loops -= 1
        return visited

    def _leave(self, node: ast.AST) -> ast.AST:
        return node

    visit_Break = visit_Continue = _leave_loop  # noqa: N815  as ast calls them
    visit_For = visit_AsyncFor = visit_While = _enter_loop  # noqa: N815  the same
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave  # noqa: N815  the same


def _finds_data(node: ast.Call) -> bool:
    """Whether a call finds the folder for data, which is the same in each run."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(attr="environ")), args=[ast.Constant(value="HERMES_DATA_DIR"), *_]
        ):
            return True
        case _:
            return False
