"""Rules on what is used by its full name, whatever a file calls it: what starts programs, looks around, is replaced."""

from __future__ import annotations

import ast
import doctest
import re
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.audit import shells
from hermes_exec_policies.gate.audit.ordinary import STARTS
from hermes_exec_policies.gate.audit.rules import reached
from hermes_exec_policies.gate.verdict import Finding, functional, security

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hermes_exec_policies.gate.audit.folded import Folder
    from hermes_exec_policies.gate.audit.ordinary import Ordinary
    from hermes_exec_policies.gate.audit.origins import Origins

_MODULES = frozenset({"os", "sys", "subprocess", "builtins", "socket", "ctypes", "importlib", "pickle", "marshal"})
_REPLACEABLE = frozenset(
    {"sys.stdout", "sys.stderr", "sys.stdin", "sys.argv", "warnings.showwarning", "warnings.formatwarning"}
)
_NO_CODE = re.compile(r"\.(zip|egg|whl|pyz|jar)$|(^|/)(assets|data|templates|examples|references)(/|$)")
_PYTHON = re.compile(r"(^|/)python[\d.]*$")
_RESOLVED = re.compile(r"(ext://)?(os|posix|subprocess|builtins|pty|ctypes|importlib|runpy|code|socket|shutil)\.\w+")
_CHANCE = re.compile(
    r"random\.(random|randint|randrange|choice|uniform|getrandbits)|secrets\.\w+|os\.urandom|uuid\.uuid4"
)
_READERS = ("xml.sax.parse", "pandas.read_", "numpy.loadtxt", "numpy.genfromtxt")
_ADDRESS = re.compile(r"(https?|ftps?|s3)://")
_RUNNERS = frozenset({"run", "runctx", "loadTestsFromName", "loadTestsFromNames"})
_WRITTEN = re.compile(r"/(app/data|dev/shm|tmp|var/tmp)(/|$)")
_EVERYTHING = re.compile(r"(/|~|/app|/app/skills|/home|/root|/usr|/etc|/var)/?")
_HANDS_ON = frozenset({"format_map", "substitute", "safe_substitute"})
_FOR_READERS = re.compile(r"</?(tool_result|function_results?|tool_response)\b|\x1b\]52;", re.IGNORECASE)
"""What ends or begins the words of a tool for a model, or writes the clipboard of who looks at a terminal."""
_WHO = re.compile(
    r"os\.get(pid|ppid|uid|euid|gid|egid)|resource\.getrlimit|threading\.(active_count|enumerate)|locale\.getlocale"
)


class Reaches:
    """The rules over one file of scripts/."""

    def __init__(
        self, path: str, tree: ast.Module, folder: Folder, origins: Origins, ordinary: Ordinary, *, network: bool
    ) -> None:
        self._ordinary = ordinary
        self._path = path
        self._tree = tree
        self._folder = folder
        self._origins = origins
        self._network = network
        used = [origins.of(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)]
        self.starts = any(STARTS.fullmatch(each) for each in used) or any(
            isinstance(node, ast.Attribute) and node.attr in {"subprocess_shell", "subprocess_exec"}
            for node in ast.walk(tree)
        )
        """Whether the file can start programs."""
        self._profiles = any(each.startswith(("cProfile", "profile", "unittest")) for each in used)
        self._seeded = any(isinstance(node, ast.Attribute) and node.attr == "seed" for node in ast.walk(tree))
        self._values = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._resolves = any(each.startswith(("logging.config", "pydoc")) for each in used)

    def findings(self, python: Callable[[str], list[Finding]]) -> Iterator[Finding]:
        """What the rules find; ``python`` looks at a text of Python that is handed to an interpreter."""
        itself = {
            id(node.value)
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == "__name__"
        }
        for node in ast.walk(self._tree):
            match node:
                case ast.Attribute() | ast.Name() if id(node) not in itself:
                    yield from self._used(node)
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        yield from self._patched(target, value)
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    for each in names:
                        if (each.name in _MODULES and module != "multiprocessing") or (
                            each.name == "*" and module in _MODULES
                        ):
                            yield self._hit("pieces", f"it reaches a module through {module}: {each.name}", node)
                case ast.Call():
                    yield from self._called(node, python)
                case ast.AugAssign(target=target, value=value) if self._origins.of(target) == "sys.path":
                    yield from self._searched(value)
                case ast.Assign(targets=[ast.Attribute() as target], value=value) if (
                    self._origins.of(target) == "sys.path"
                ):
                    yield from self._searched(value)
                case ast.Assign(targets=[ast.Subscript(value=target)], value=value) if (
                    self._origins.of(target) == "sys.path"
                ):
                    yield from self._searched(value)
                case ast.Compare():
                    yield from self._compared(node)
                case ast.Constant(value=str(text)) if found := _FOR_READERS.search(text):
                    yield self._hit("result", f"it holds what acts on whoever reads its result: {found[0]!a}", node)
                case ast.Constant(value=str(text)) if self._resolves and _RESOLVED.fullmatch(text):
                    yield self._hit("pieces", f"it reaches by a word for {text}", node)
                case _:
                    pass
        yield from self._typed()

    def _hit(self, code: str, why: str, node: ast.expr | ast.stmt) -> Finding:
        return security(f"audit.{code}", why, self._path, node.lineno)

    def _used(self, node: ast.Attribute | ast.Name) -> Iterator[Finding]:
        name = self._origins.of(node)
        if (code := reached().get(name)) and not self._ordinary.is_one(node):
            yield self._hit(code, f"it uses what no skill needs: {name}", node)
        elif name in _MODULES and self._ordinary.is_handed_on(node):
            yield self._hit("pieces", f"it hands on {name} as a value", node)
        elif name.endswith(".__dict__") and self._origins.standard(node):
            yield self._hit("pieces", f"it looks up names of {name.removesuffix('.__dict__')}", node)

    def _patched(self, target: ast.expr, value: ast.expr) -> Iterator[Finding]:
        if not isinstance(target, ast.Attribute) or isinstance(value, ast.Constant):
            return
        name = self._origins.standard(target)
        if name and name not in _REPLACEABLE and name not in {"sys.path", "tempfile.tempdir"}:
            yield self._hit("patch", f"it replaces {name}", target)

    def _called(self, node: ast.Call, python: Callable[[str], list[Finding]]) -> Iterator[Finding]:
        name = self._origins.of(node.func)
        first = node.args[0] if node.args else None
        if STARTS.fullmatch(name):
            yield from self._started(node, python)
        elif name.startswith("sys.path."):
            for each in node.args:
                yield from self._searched(each)
        elif name == "shutil.rmtree" and _EVERYTHING.fullmatch(str(self._folder.value(first) if first else "")):
            yield self._hit("erase", "it removes what is not a skill's", node)
        elif self._hands_on_variables(name, node):
            why = "it hands on all variables: read those that you need by name"
            yield functional("audit.environment", why, self._path, node.lineno)
        elif name == "open" and isinstance(first, ast.Name) and first.id == "__file__" and _writes(node):
            yield functional(
                "audit.itself", "it changes its own text; keep what changes below /app/data", self._path, node.lineno
            )
        elif name.startswith("timeit.") and isinstance(first, ast.Constant | ast.JoinedStr | ast.BinOp | ast.List):
            yield self._hit("dynamic-code", f"it runs text as code: {name}", node)
        elif name == "doctest.testmod":
            for example in doctest.DocTestParser().get_examples("\n".join(self._texts())):
                yield from python(example.source)
        elif name.startswith(_READERS) and any(map(_is_address, node.args)) and not self._network:
            yield self._hit("network", f"it reads from the network ({name}) and declares no host", node)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _RUNNERS and self._profiles and node.args:
            if not isinstance(first, ast.Name | ast.Attribute | ast.Lambda):
                yield self._hit("dynamic-code", f"it runs text as code: {node.func.attr}", node)
        elif isinstance(node.func, ast.Name) and node.func.id == "breakpoint":
            yield functional("audit.debugger", "it stops for somebody to look into it", self._path, node.lineno)
        elif isinstance(node.func, ast.Name) and first is not None:
            yield from self._by_word(node.func.id, node, first)

    def _hands_on_variables(self, name: str, node: ast.Call) -> bool:
        if name == "os.path.expandvars":
            return not _is_plain(node.args)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        given = [*node.args, *(each.value for each in node.keywords if each.arg is None)]
        return (called in _HANDS_ON or called == "format") and any(
            self._origins.of(each) == "os.environ" for each in given
        )

    def _by_word(self, called: str, node: ast.Call, first: ast.expr) -> Iterator[Finding]:
        owner = self._origins.standard(first)
        if called in {"setattr", "delattr"} and owner and owner not in {"sys.stdout", "sys.stderr"}:
            yield self._hit("patch", f"it replaces what belongs to {owner}", node)
        elif called == "vars" and owner:
            yield self._hit("pieces", f"it looks up names of {owner}", node)
        elif called == "getattr" and owner in _MODULES | {"shutil", "posix"} and not _is_plain(node.args[1:2]):
            yield self._hit("pieces", f"getattr of {owner} with a name that is not seen", node)

    def _started(self, node: ast.Call, python: Callable[[str], list[Finding]]) -> Iterator[Finding]:
        """A program is started: with which words, as far as they are seen."""
        for given in node.args:
            words = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
            said = [self._word(each) for each in words]
            line = " ".join(said)
            yield from shells.started(self._path, line)
            if not self._network:
                yield from shells.network(self._path, line)
            for before, option, code in zip(said, said[1:], said[2:], strict=False):
                if option == "-c" and _PYTHON.search(before):
                    yield from python(code)

    def _word(self, node: ast.expr) -> str:
        value = self._folder.value(node)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, list | tuple):
            return " ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]  of constants
        if isinstance(value, str):
            return value
        if self._origins.of(node) == "sys.executable":
            return "python3"
        # What is not known may still hold words that are: `f'curl {url}'`.
        return " ".join(
            each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )

    def _searched(self, value: ast.expr) -> Iterator[Finding]:
        named = self._values.get(value.id) if isinstance(value, ast.Name) else None
        for each in ast.walk(named or ast.Constant(0)):
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and _WRITTEN.match(each.value):
                yield self._hit("imports", f"it imports what it wrote itself, from {each.value}", value)
        for each in ast.walk(value):
            text = each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else ""
            if _NO_CODE.search(text) or _WRITTEN.match(text):
                yield self._hit("imports", f"it imports what nobody looked at, from {text}", value)

    def _compared(self, node: ast.Compare) -> Iterator[Finding]:
        sides = [node.left, *node.comparators]
        if not any(isinstance(each, ast.Constant) for each in sides):
            return
        for each in sides:
            names = {self._origins.of(part) for part in ast.walk(each) if isinstance(part, ast.Attribute | ast.Name)}
            if any(_WHO.fullmatch(name) for name in names):
                why = "what it does depends on who runs it: a skill does the same for everybody"
                yield functional("audit.harness", why, self._path, node.lineno)
            if not self._seeded and any(_CHANCE.fullmatch(name) for name in names):
                why = "what it does depends on chance: use random.Random with a seed that is an argument"
                yield functional("audit.chance", why, self._path, node.lineno)

    def _texts(self) -> list[str]:
        """What it says of itself and of its functions, which may hold examples that can be run."""
        return [
            ast.get_docstring(node) or ""
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def _typed(self) -> Iterator[Finding]:
        """Types that are texts are evaluated by whoever asks for them."""
        for node in ast.walk(self._tree):
            match node:
                case ast.arg(annotation=ast.expr() as kind) | ast.AnnAssign(annotation=kind):
                    pass
                case ast.FunctionDef(returns=ast.expr() as kind) | ast.AsyncFunctionDef(returns=ast.expr() as kind):
                    pass
                case _:
                    continue
            if isinstance(kind, ast.Constant) and isinstance(kind.value, str) and _calls(kind.value):
                yield self._hit("dynamic-code", "a type is a text that calls something", kind)


def _writes(node: ast.Call) -> bool:
    """Whether a file is opened for more than to be read, as far as that is said."""
    modes = [*node.args[1:2], *(each.value for each in node.keywords if each.arg == "mode")]
    return any(isinstance(each, ast.Constant) and set(str(each.value)) & set("wax+") for each in modes)


def _calls(text: str) -> bool:
    """Whether a type that is a text calls something; one that cannot be read may."""
    try:
        return any(isinstance(each, ast.Call) for each in ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "(" in text


def _is_address(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_ADDRESS.match(node.value))


def _is_plain(arguments: list[ast.expr]) -> bool:
    """Whether a name is said in so many words."""
    return all(isinstance(each, ast.Constant) for each in arguments)
