"""Rewrite a skill's script: mutants that its tests must notice, and a copy that reports its conditions.

If the tests of a skill pass although it was broken on purpose, they do not test it, or their outcomes are forged.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.launch import read_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case _:
            return False


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
    match node:
        case ast.Attribute(attr="stdout" | "stderr"):
            return True
        case _:
            return False


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
def hx_seen_(number, value, seen_=set()):
    try:
        fact = (number, bool(value))
    except Exception:
        return value
    if fact not in seen_:
        seen_.add(fact)
        import os
        os.write(2, b'\\nHXSEEN %d %d\\n' % fact)
    return value


def hx_get_(number, get, key, default):
    found = get(key, default)
    hx_seen_(number, found is default)
    return found


def hx_pick_(number, pick, one, other):
    found = pick(one, other)
    hx_seen_(number, found is one)
    return found
"""
CALL, MARK = "HXCALL", "HXSEEN"
_AMBIENT = {
    "time": {"time", "time_ns", "localtime", "gmtime", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
             "process_time", "strftime", "ctime", "clock_gettime", "thread_time"},
    "datetime": {"now", "today", "utcnow"}, "date": {"today"},
    "os": {"environ", "getenv", "getpid", "getppid", "getuid", "geteuid", "uname", "getloadavg", "times", "cpu_count",
           "sched_getaffinity", "getpgid", "getsid", "listdir", "scandir", "stat", "lstat", "fstat", "readlink",
           "statvfs", "isatty", "ttyname", "nice", "getpriority", "getcwd"},
    "sys": {"argv", "flags", "modules", "gettrace", "getprofile", "stdin", "stdout", "stderr", "orig_argv", "path"},
    "threading": {"active_count", "enumerate"},
}  # fmt: skip
"""What of each module depends on more than the arguments."""
_AMBIENT_MODULES = frozenset(
    {"resource", "platform", "random", "secrets", "uuid", "socket", "psutil", "getpass", "pwd"}
)
_BY_PROCESS = frozenset({"hash", "id"})
"""Functions whose results differ between two processes."""
_EQUALITIES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_AMBIENT_PATHS = ("/proc", "/sys/", "/etc/hostname", "/dev/shm")  # noqa: S108  names that a skill may read


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A script that reports on standard error which way each of its conditions goes."""

    source: str
    lines: Mapping[int, int]
    """The line of each condition, by its number."""
    guards: frozenset[int]
    """Conditions that lead to an error if they are true, not to a result."""
    rare: Mapping[int, bool]
    """The way of each comparison for equality, or look-up in a table, that few arguments take."""
    ambient: bool
    """Whether the function reads the clock, the environment or the machine."""


def instrument(source: str, function: str) -> Instrumented:
    """Return the script with a recorder around each condition of the function, and of functions that it calls."""
    tree = ast.parse(source)
    nodes = reachable_nodes(tree, function)
    chosen = {id(node) for node in nodes}
    recorder = _Recorder(chosen)
    changed = recorder.visit(tree)
    place = next(
        (number for number, node in enumerate(changed.body) if not _stays_first(node, number)), len(changed.body)
    )
    changed.body[place:place] = ast.parse(RECORDER).body
    text = ast.unparse(ast.fix_missing_locations(changed))
    ambient = _is_ambient(ast.parse(source))
    return Instrumented(text, recorder.lines, frozenset(recorder.guards), recorder.rare, ambient)


def read_outcomes(log: str) -> dict[int, frozenset[tuple[int, bool]]]:
    """Return the conditions that each call of a run reported, with the way that each went, by the call's number."""
    found: dict[int, set[tuple[int, bool]]] = {}
    call = -1
    for line in log.splitlines():
        mark, *words = line.split(" ")
        if not all(each.isdecimal() for each in words):
            continue
        if mark == CALL and len(words) == 1:
            call = int(words[0])
        elif mark == MARK and len(words) == 2:
            found.setdefault(call, set()).add((int(words[0]), words[1] == "1"))
    return {number: frozenset(seen) for number, seen in found.items()}


def _stays_first(node: ast.stmt, number: int) -> bool:
    """Whether a statement must stay at the beginning of a module: its docstring, and imports from the future."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return number == 0
        case ast.ImportFrom(module="__future__"):
            return True
        case _:
            return False


class _Recorder(ast.NodeTransformer):
    def __init__(self, chosen: set[int]) -> None:
        self._chosen = chosen
        self.lines: dict[int, int] = {}
        self.guards: set[int] = set()
        self.rare: dict[int, bool] = {}

    def _record(self, node: ast.expr, *, guard: bool = False) -> ast.expr:
        match node:
            case ast.Call(func=ast.Name(id="hx_seen_"), args=[ast.Constant(value=int() as known), _]):
                self.guards |= {known} if guard else set()
                return node
            case _:
                pass
        number = len(self.lines)
        self.lines[number] = getattr(node, "lineno", 0)
        if guard:
            self.guards.add(number)
        return ast.Call(ast.Name("hx_seen_", ast.Load()), [ast.Constant(number), node], [])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        is_chosen = id(node) in self._chosen
        visited = super().generic_visit(node)
        if not is_chosen:
            return visited
        match visited:
            case ast.Compare(ops=ops):
                if isinstance(ops[0], _EQUALITIES) and len(ops) == 1:
                    self.rare[len(self.lines)] = isinstance(ops[0], ast.Eq | ast.In)
                return self._record(visited)
            case ast.If(test=test, body=[*_, ast.Raise()]):
                visited.test = self._record(test, guard=True)
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                visited.test = self._record(test)
            case ast.BoolOp(values=values):
                visited.values = [self._record(each) for each in values]
            case ast.comprehension(ifs=conditions):
                visited.ifs = [self._record(each) for each in conditions]
            case ast.match_case(body=body):
                visited.body = [ast.Expr(self._record(ast.Constant(value=True))), *body]
            case ast.Try(handlers=[_, *_]):
                self._record_handlers(visited)
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[_, _], keywords=[]):
                if not _finds_data(visited):
                    self.rare[len(self.lines)] = False
                return self._record_choice("hx_get_", visited)
            case ast.Call(func=ast.Name(id="min" | "max"), args=[ast.expr() as one, ast.expr() as other], keywords=[]):
                starred = isinstance(one, ast.Starred) or isinstance(other, ast.Starred)
                return visited if starred else self._record_choice("hx_pick_", visited)
            case _:
                pass
        return visited

    def _record_handlers(self, node: ast.Try) -> None:
        """Record for each handler of a ``try`` whether it is entered, or the body completes."""
        passed: list[ast.expr] = []
        for handler in node.handlers:
            number = len(self.lines)
            self.lines[number] = handler.lineno
            if isinstance(handler.body[-1], ast.Raise):
                self.guards.add(number)
            entered, completed = (
                ast.Call(ast.Name("hx_seen_", ast.Load()), [ast.Constant(number), ast.Constant(value=way)], [])
                for way in (True, False)
            )
            handler.body = [ast.Expr(entered), *handler.body]
            passed.append(completed)
        body = _Completions(passed).visit(ast.Module(node.body, [])).body
        node.body = [*body, *map(ast.Expr, passed)]

    def _record_choice(self, helper: str, call: ast.Call) -> ast.expr:
        """Record which of two values a call gives, where a condition is hidden in it."""
        number = len(self.lines)
        self.lines[number] = call.lineno
        return ast.Call(ast.Name(helper, ast.Load()), [ast.Constant(number), call.func, *call.args], [])


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


def _is_ambient(tree: ast.Module) -> bool:
    """Whether a module reads the clock, the environment or the machine; the folder for data is no such thing."""
    usual = {id(each.func.value) for each in ast.walk(tree) if isinstance(each, ast.Call) and _finds_data(each)}  # type: ignore[attr-defined]  # checked there
    return any(_reads_ambient(each) for each in ast.walk(tree) if id(each) not in usual)


def _finds_data(node: ast.Call) -> bool:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(attr="environ")), args=[ast.Constant(value="HERMES_DATA_DIR"), *_]
        ):
            return True
        case _:
            return False


def _reads_ambient(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return text.startswith(_AMBIENT_PATHS)
        case ast.Name(id=function, ctx=ast.Load()):
            return function in _BY_PROCESS
        case ast.Attribute(value=ast.Name(id=module) | ast.Attribute(attr=module), attr=name):
            return name in _AMBIENT.get(module, ()) or module in _AMBIENT_MODULES
        case ast.ImportFrom(module=str(module), names=names):
            return module in _AMBIENT_MODULES or any(each.name in _AMBIENT.get(module, ()) for each in names)
        case _:
            return False
