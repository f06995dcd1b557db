"""Call a function with generated arguments, and find results that no case has checked.

A function may be right for the arguments of its cases and wrong for others. So its conditions are recorded: one that
goes one way in every checked call, and the other way in a call with generated arguments, leads to an unchecked result.
"""

from __future__ import annotations

import ast
import json
import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.generated import generate_arguments
from hermes_exec_policies.gate.mutants import reachable_nodes
from hermes_exec_policies.gate.verdict import Finding, advice, functional

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_policies.gate.suites import Candidate

_GENERATED = 40
"""The most calls with generated arguments."""
_CRASHES = ("signal", "no result")
_SHOWN = 200

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
_AMBIENT_PATHS = ("/proc", "/sys/", "/etc/hostname", "/dev/shm")  # noqa: S108  names that a skill may read


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A script that reports on standard error which way each of its conditions goes."""

    source: str
    lines: Mapping[int, int]
    """The line of each condition, by its number."""
    guards: frozenset[int]
    """Conditions that lead to an error if they are true, not to a result."""
    ambient: bool
    """Whether the function reads the clock, the environment or the machine."""


async def check_generated(
    candidate: Candidate, checked: Sequence[dict[str, Any] | list[Any]]
) -> tuple[list[Finding], str]:
    """Call a skill with arguments that are generated from its signature, each in a process of its own in one sandbox.

    Args:
        candidate: the skill.
        checked: the arguments of calls that had the expected results.

    Returns:
        Findings: a call ended the process without an error, or raised one that the docstring does not name; and a way
        through the function that leads to a result and that no checked call takes, or an empty text.
    """
    signature, entry = candidate.manifest.signature, candidate.manifest.entry
    source = candidate.tree.read(entry).decode()
    known = [named for each in checked if (named := candidate.by_name(each)) is not None]
    seed = random.SystemRandom().randrange(1 << 32)
    made = generate_arguments(signature.schema, known, source, _GENERATED, seed)
    if not made or not signature.names:
        return [], ""
    recorded = instrument(source, signature.function)
    root = candidate.work / "instrumented" / candidate.manifest.module
    candidate.plant(recorded.source, root)
    called, log = await candidate.call_varied([*known, *made], root)
    shutil.rmtree(root.parent)
    if len(called) < len(known) + len(made) or all(each.error.startswith(_CRASHES) for each in called):
        return [], "its copy with recorded conditions cannot be called, so that ways without a case are not known"
    generated = dict(enumerate(zip(made, called[len(known) :], strict=False), len(known)))
    for arguments, each in generated.values():
        if each.error.startswith(_CRASHES):
            again, _ = await candidate.call(arguments, as_used=True)  # a call of its own, without the recorder
            if again.error.startswith(_CRASHES):
                said = f"for {arguments} it ends with {again.error} instead of an error"
                return [functional("suites.bad-input", said, entry)], ""
    outcomes = read_outcomes(log)
    seen = frozenset[tuple[int, bool]]().union(*(outcomes.get(number, ()) for number in range(len(known))))
    reached = {
        outcome: arguments
        for number, (arguments, each) in generated.items()
        if each.ok
        for outcome in outcomes.get(number, frozenset()) - seen
    }
    errors = {each.error for _, each in generated.values()} - {"", "timeout", *signature.raises}
    found: list[Finding] = []
    if errors and signature.raises:
        found.append(advice("suites.errors", f"it raises {min(errors)}, which its docstring does not name", entry))
    return found, _describe_unchecked(recorded, seen, reached)


def _describe_unchecked(
    recorded: Instrumented, seen: frozenset[tuple[int, bool]], reached: Mapping[tuple[int, bool], Any]
) -> str:
    """Describe the first condition that no checked call sent that way, though it decides a result."""
    if reached:
        (number, way), arguments = min(reached.items(), key=lambda each: each[0])
        said = json.dumps(arguments, ensure_ascii=False)[:_SHOWN]
        return f"no case has the condition of line {recorded.lines[number]} {str(way).lower()}, as {said} has"
    ways = [(number, way) for number in recorded.lines for way in (False, True)]
    left = [each for each in ways if each not in seen and not (each[1] and each[0] in recorded.guards)]
    if not (recorded.ambient and left):
        return ""
    number, way = left[0]
    said = "and its results may depend on the clock or the machine"
    return f"no call has the condition of line {recorded.lines[number]} {str(way).lower()}, {said}"


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
    return Instrumented(text, recorder.lines, frozenset(recorder.guards), _is_ambient(ast.parse(source)))


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
            case ast.Compare():
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
            case ast.Call(func=ast.Attribute(attr="get"), args=[_, _], keywords=[]):
                return self._record_choice("hx_get_", visited)
            case ast.Call(func=ast.Name(id="min" | "max"), args=[ast.expr() as one, ast.expr() as other], keywords=[]):
                starred = isinstance(one, ast.Starred) or isinstance(other, ast.Starred)
                return visited if starred else self._record_choice("hx_pick_", visited)
            case _:
                pass
        return visited

    def _record_choice(self, helper: str, call: ast.Call) -> ast.expr:
        """Record which of two values a call gives, where a condition is hidden in it."""
        number = len(self.lines)
        self.lines[number] = call.lineno
        return ast.Call(ast.Name(helper, ast.Load()), [ast.Constant(number), call.func, *call.args], [])


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
        case ast.Attribute(value=ast.Name(id=module) | ast.Attribute(attr=module), attr=name):
            return name in _AMBIENT.get(module, ()) or module in _AMBIENT_MODULES
        case ast.ImportFrom(module=str(module), names=names):
            return module in _AMBIENT_MODULES or any(each.name in _AMBIENT.get(module, ()) for each in names)
        case _:
            return False
