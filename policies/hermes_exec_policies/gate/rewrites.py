"""Rewrites of a skill's script: mutants that its tests must notice, and a copy that records its conditions.

If the tests of a skill pass although it was broken on purpose, they do not test it, or their outcomes are forged.

A function may be right for the arguments of its cases and wrong for others. So a copy of the script reports which way
each of its conditions goes, and which of its blocks run. Each *way* (a condition that is true or false, a block that
runs) which leads to a result and which no case takes is a part of the function that is unchecked.
"""

from __future__ import annotations

import ast
import copy
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.launch import read_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


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
    (helper,) = [node for node in ast.parse(read_program("apart")).body if isinstance(node, ast.ClassDef)]
    entered = ast.withitem(ast.Call(ast.Name("Apart", ast.Load()), [], []), ast.Name("apart_", ast.Store()))
    body = [*function.body[described:], ast.Return(None)]
    function.body[described:] = [helper, ast.With([entered], [_Returns().visit(each) for each in body])]
    return ast.unparse(ast.fix_missing_locations(other))


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
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.Assert) and not _is_text(child):
                yield child
                yield from _walk(child)


def _is_text(node: ast.AST) -> bool:
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


def _stays_first(node: ast.stmt, number: int) -> bool:
    """Whether a statement must stay at the beginning of a module: its docstring, and imports from the future."""
    return (number == 0 and _is_text(node)) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


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
