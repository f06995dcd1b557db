"""Examine a skill's text. A few certain findings refuse it, and can be fixed; all others are advice.

No findings prove nothing: the sandbox bounds what a skill does, whatever its text says. A rule refuses only where the
syntax tree is certain. No rule is about calls of ``subprocess``, ``open`` or ``socket``: the sandbox bounds them, and
the gate observes them while the skill runs.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import posixpath
import re
import sys
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.tree import Tree
from hermes_exec_policies.gate.verdict import Finding, advice, functional

if TYPE_CHECKING:
    from collections.abc import Iterator


def examine_files(files: dict[str, Any]) -> list[Finding]:
    """Return the findings in every file of a skill that is text, whatever its name; the layout allows other kinds."""
    tree = Tree.from_facts(files)
    texts: dict[str, str] = {}
    for each in tree.files:
        with contextlib.suppress(UnicodeDecodeError):
            texts[each.path] = tree.read(each.path).decode()
    return examine_texts(texts)


_SHELL = (".sh", ".bash")
_OTHERS = re.compile(r"scripts/.*\.(pl|pm|rb|[mc]?js|ts|php|lua|ps1|bat|cmd|tcl|r|jl|go|c|cc|cpp|rs|java|awk|vbs)")


def examine_texts(texts: dict[str, str]) -> list[Finding]:
    """Return the findings in the texts of a skill, by path."""
    found: list[Finding] = []
    for path, text in sorted(texts.items()):
        if path.endswith(".py"):
            certain = check_python(path, text)
            hints = run_bandit(path, text) if path.startswith("scripts/") else []
            lines = {each.line for each in certain}
            found += certain
            found += [each for each in hints if each.line not in lines]
        elif path.startswith("scripts/") and (path.endswith(_SHELL) or re.match(r"#!.*\b(ba|da|k|z)?sh\b", text)):
            found += _check_shell(path, text)
        elif _OTHERS.fullmatch(path):
            said = "the audit reads Python and shell scripts; nothing else is known of this file"
            found.append(advice("audit.language", said, path))
    return list(dict.fromkeys(found))


def _check_shell(path: str, text: str) -> list[Finding]:
    return [
        functional(PIPED.code, PIPED.explain(f"it pipes a download to a shell: {line.strip()[:120]}"), path, number)
        for number, line in enumerate(text.replace("\\\n", "  ").split("\n"), 1)
        if not line.lstrip().startswith("#") and pipes_to_shell(line)
    ]


_KINDS = ("calls", "names", "imports", "assigned", "hooks", "texts", "bandit")


@dataclass(frozen=True, slots=True)
class Rule:
    """A thing that no skill needs."""

    code: str
    """The code of a finding, ``audit.trace``."""
    why: str
    instead: str

    def explain(self, what: str) -> str:
        """Return the text of a finding: what was found, why it matters, and the smallest change."""
        return f"{what}: {self.why}; {self.instead}"


DYNAMIC = Rule(
    "audit.dynamic-code",
    "text that comes from outside the file would run as code",
    "use ast.literal_eval or json.loads for values, and a function for each operation",
)
UNPICKLED = Rule("audit.unpickled", "bytes that were downloaded or decoded choose the code that runs", "use json.loads")
PIPED = Rule(
    "audit.pipe-to-shell",
    "a program from the network would run without having been examined",
    "add the program's steps as a script, or name a package in needs-packages",
)
MODULES = Rule(
    "audit.modules",
    "it replaces a module for the program that checks the skill",
    "import the module under another name and call a function of your own",
)
CODING = Rule("audit.coding", "people and tools would read another text than Python does", "save the file as UTF-8")


@functools.cache
def load_rules() -> dict[str, dict[str, Rule]]:
    """Return the rules by kind and by the name that they match."""
    found: dict[str, dict[str, Rule]] = {kind: {} for kind in _KINDS}
    table = tomllib.loads(Path(__file__).with_name("audit_rules.toml").read_text("utf-8"))
    for name, entry in table.items():
        rule = Rule(f"audit.{name}", entry["why"], entry["instead"])
        for kind in _KINDS:
            found[kind] |= dict.fromkeys(entry.get(kind, ()), rule)
    return found


_MAX_HINTS = 20


def run_bandit(path: str, text: str) -> list[Finding]:
    """Return bandit's findings of medium severity and confidence, and those of checks that refuse."""
    # It uses what Python has marked as going away, from its import on; its log goes nowhere.
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from bandit.core.config import BanditConfig
        from bandit.core.manager import BanditManager

        manager = BanditManager(BanditConfig(), "file", quiet=True, ignore_nosec=True)
        manager._parse_file(path, io.BytesIO(text.encode()), [path])  # noqa: SLF001  its only entry for text in memory
        issues = [(each.test_id, each.text, each.lineno) for each in manager.get_issue_list("MEDIUM", "MEDIUM")]
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            _clear_shared_nodes(ast.parse(text))
    return list(_findings(path, issues))


def _clear_shared_nodes(tree: ast.Module) -> None:
    """Remove bandit's references to its tree from the nodes that all trees share, such as ``Load()``.

    A copy of another tree would follow them.
    """
    for node in ast.walk(tree):
        if not node._fields:
            vars(node).clear()


def _findings(path: str, issues: list[tuple[str, str, int]]) -> Iterator[Finding]:
    refusing = load_rules()["bandit"]
    hints = 0
    for test, text, line in issues:
        if (rule := refusing.get(test)) is not None:
            yield functional(rule.code, rule.explain(f"bandit {test}: {text}"), path, line)
        elif (hints := hints + 1) <= _MAX_HINTS:
            yield advice("audit.hint", f"bandit {test}: {text}", path, line)


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


ONLY_DATA = "a run writes below /app/data alone"
_UNWRITABLE = re.compile(r"/(app/skills|tmp|var/tmp|root|home/[^/]+)(/|$)")
_ELSEWHERE = re.compile(r"^(/(app/skills|tmp|var/tmp|root|home/[^/]+)(/|$)|(~|\.)?/+)")
_HIDDEN = re.compile(r"(^|/)\.")
_CODE = re.compile(r"\.(py\w?|pth|so|sh|bash)$|/(SKILL\.md|scripts|tests)(/|$)")
_UNKNOWN = "*"
_OPENS = frozenset({"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"})
_MAKES = frozenset({"os.mkdir", "os.makedirs"})
_PATHS = frozenset({"pathlib.Path", "pathlib.PosixPath"})
_PATH_WRITES = frozenset({"write_text", "write_bytes", "mkdir", "touch"})


def is_misplaced(path: str) -> bool:
    """Whether a path that is written is a data file's in a folder that a run cannot write."""
    plain = posixpath.normpath(path)
    if not path or _HIDDEN.search(plain) or "\0" in path or "://" in path:
        return False
    if plain.startswith("/"):
        return bool(_UNWRITABLE.match(plain)) and not _CODE.search(plain)
    return not plain.startswith(_UNKNOWN)


class Destinations:
    """The literal paths of one file that it writes to and cannot."""

    def __init__(self, tree: ast.Module, origins: Origins) -> None:
        self._origins = origins
        self._values = find_assignments(tree)
        self._calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        moves = any(origins.of(node.func) in {"os.chdir", "os.fchdir", "contextlib.chdir"} for node in self._calls)
        self._found: dict[str, int] = {}
        for node in self._calls:
            if (target := self._find_written(node)) is not None:
                path = self._path(target)
                if is_misplaced(path) and (path.startswith("/") or not moves):
                    self._found.setdefault(path, node.lineno)

    def findings(self, path: str) -> Iterator[Finding]:
        """One for each of them."""
        for destination, line in self._found.items():
            yield functional(
                "audit.destination",
                f"it writes to {destination}; {ONLY_DATA}: write {_instead(destination)} instead",
                path,
                line,
            )

    def _find_written(self, node: ast.Call) -> ast.expr | None:
        """What names the file or the folder that a call makes or writes; None where it does neither."""
        first = node.args[0] if node.args else None
        name = self._name(node)
        if name in _MAKES or (name in _OPENS and _is_write_only(node, 1)):
            return first
        if isinstance(node.func, ast.Attribute) and self._is_path(node.func.value, _DEEP):
            writes = node.func.attr in _PATH_WRITES or (node.func.attr == "open" and _is_write_only(node, 0))
            return node.func.value if writes else None
        return None

    def _name(self, node: ast.Call) -> str:
        return self._origins.of(node.func) or (node.func.id if isinstance(node.func, ast.Name) else "")

    def _is_path(self, node: ast.expr, deep: int) -> bool:
        match node:
            case ast.Call(func=function):
                return self._origins.of(function) in _PATHS
            case ast.BinOp(left=inner, op=ast.Div()) | ast.Attribute(value=inner, attr="parent"):
                return deep > 0 and self._is_path(inner, deep - 1)
            case ast.Name(id=name) if name in self._values:
                return deep > 0 and self._is_path(self._values[name], deep - 1)
            case _:
                return False

    def _path(self, node: ast.expr, deep: int = _DEEP) -> str:
        """Return a path, with ``*`` for parts that are not known."""

        def part(each: ast.expr) -> str:
            return self._path(each, deep - 1) if deep else _UNKNOWN

        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name) if name in self._values:
                whole = part(self._values[name])
            case ast.JoinedStr(values=values):
                whole = "".join(map(part, values))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                whole = part(left) + part(right)
            case ast.BinOp(left=left, op=ast.Mod()):
                whole = re.sub(r"%\w", _UNKNOWN, part(left))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                whole = posixpath.join(part(left), part(right))
            case ast.Call(func=ast.Attribute(value=inner, attr="format")):
                whole = re.sub(r"\{[^}]*\}", _UNKNOWN, part(inner))
            case ast.Call(func=ast.Attribute(value=inner, attr="joinpath"), args=more):
                whole = posixpath.join(part(inner), *map(part, more))
            case ast.Call(func=function, args=[_, *_] as parts) if self._origins.of(function) in _PATHS | {
                "os.path.join"
            }:
                whole = posixpath.join(*map(part, parts))
            case ast.Call(func=ast.Name(id="str"), args=[inner]):
                whole = part(inner)
            case ast.Attribute(value=inner, attr="parent"):
                whole = posixpath.dirname(part(inner))
            case ast.Call(func=function, args=[inner]) if self._origins.of(function) == "os.path.dirname":
                whole = posixpath.dirname(part(inner))
            case _:
                whole = _UNKNOWN
        return whole


def _instead(path: str) -> str:
    """Return the path in the folder that a run may write."""
    return posixpath.join("/app/data", _ELSEWHERE.sub("", posixpath.normpath(path)) or "")


def _is_write_only(node: ast.Call, position: int) -> bool:
    """Whether a call that opens a file says in so many words that it writes it and reads nothing of what was there."""
    modes = [*node.args[position : position + 1], *(each.value for each in node.keywords if each.arg == "mode")]
    mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else ""
    return isinstance(mode, str) and bool(set(mode) & set("wx") or ("a" in mode and "+" not in mode))


class Origins:
    """The modules and their members that a file imports, by the names that it gives them."""

    def __init__(self, tree: ast.Module) -> None:
        self._names: dict[str, str] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    for each in names:
                        # `import a.b` binds `a`; `import a.b as c` binds what is meant.
                        self._names[each.asname or each.name.partition(".")[0]] = (
                            each.name if each.asname else each.name.partition(".")[0]
                        )
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    for each in names:
                        self._names[each.asname or each.name] = f"{module}.{each.name}"
                case _:
                    pass
        for node in ast.walk(tree):  # `m = os`, so that another name hides nothing
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute() as value):
                    if name not in self._names and (found := self.of(value)):
                        self._names[name] = found
                case _:
                    pass

    def of(self, node: ast.expr) -> str:
        """The full name of what it is, ``os.path.join``; empty where it begins with nothing that was imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return ""
        return ".".join([self._names[node.id], *reversed(parts)])


def find_assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the names that are bound once, by an assignment, with their values."""
    values: dict[str, ast.expr] = {}
    bound: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound.append(name)
            case _:
                pass
    return {name: value for name, value in values.items() if bound.count(name) == 1}
