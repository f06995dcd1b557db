"""Rules on the syntax tree of Python: what code does that no skill needs to do.

The rules name what hides what it does (code made of text, names made of pieces, changed interpreters) and what reaches
past what a skill has. A plain call of ``subprocess`` or ``open`` is none of their business: the sandbox holds that.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.audit import hiding, members, shapes, shells, variables
from hermes_exec_policies.gate.audit.clock import Clock
from hermes_exec_policies.gate.audit.destinations import Destinations
from hermes_exec_policies.gate.audit.folded import Folder
from hermes_exec_policies.gate.audit.modules import IMPORTS, KERNEL, LOADS_FILES, NETWORK, OBJECTS, RESERVED, TESTED_BY
from hermes_exec_policies.gate.audit.ordinary import Ordinary
from hermes_exec_policies.gate.audit.origins import Origins
from hermes_exec_policies.gate.audit.reaches import Reaches
from hermes_exec_policies.gate.verdict import Finding, advice, functional, security

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUNS_TEXT = frozenset({"eval", "exec", "compile", "execfile", "runsource", "runcode", "run_path", "run_module"})
_FRAMES = frozenset(
    {"__subclasses__", "__bases__", "__base__", "__mro__", "__globals__", "__builtins__", "__code__", "__closure__",
     "f_globals", "f_locals", "f_back", "f_builtins", "gi_frame", "cr_frame", "tb_frame", "_getframe", "__loader__",
     "__reduce__", "__reduce_ex__", "__import__", "settrace", "setprofile", "addaudithook", "meta_path", "path_hooks",
     "path_importer_cache", "displayhook", "excepthook", "_current_frames", "__getattribute__"}
)  # fmt: skip
_UNREACHED = _FRAMES | _RUNS_TEXT | {"system", "popen", "_exit"}
"""What nobody reaches by a word."""
_PUT_IN_PLACE = frozenset({"sys.stdout", "sys.stderr", "sys.argv"})
_BY_TESTS = frozenset({"sys.stdin", "sys.path", "sys.dont_write_bytecode"})
_HARNESS = re.compile(
    r"^(_pytest|pytest|unittest|pluggy|iniconfig|coverage|hypothesis)\b|PYTEST_(CURRENT|VERSION|XDIST|ADDOPTS|PLUGINS)|/proc/(self|1|\d+)/(cgroup|mountinfo|mem|environ|maps|cmdline|comm|stat\\b|status)|/\.dockerenv|HERMES_(GATE|SANDBOX)"
    r"|\b(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp)\b|/proc/(self|\d+)/attr/|^LD_(PRELOAD|AUDIT)\b"
)
_PLACES = re.compile(
    r"(^|[\s'\"=:])(/root\b|/etc/(shadow|sudoers|cron|ssh|systemd|profile|ld\.so)|/app/(skills|net)\b|(/var)?/run/(docker|secrets|containerd)|/proc/sys\b|/dev/(mem|kmsg|sd|mqueue))"
    r"|^/proc/(\[0-9\]|\*|keys|key-users|sysvipc|kcore|kallsyms|self/fd|thread-self)|^/sys/(class/dmi|fs/cgroup|kernel)"
    r"|(?:^|/|~)\.(bashrc|bash_profile|zshrc|profile\b|ssh/|aws/|netrc|git-credentials|pypirc|npmrc|kube\b|gnupg\b|docker/config|docker$"
    r"|config/(gcloud|gh|op|rclone|autostart|systemd)|git/hooks\b|gcloud$|mozilla\b|password-store|electrum|bitcoin|azure$)"
)
_SECRETS = re.compile(r"\b(SECRET|PASSW|TOKEN|CRED\w*)\|\w+")
"""What looks for secrets among variables."""
_RUN = re.compile(r"__import__\s*\(")
_REACHED = re.compile(r"\w*(\.\w+|\[\w+\])*\.__\w+__")
_MINING = re.compile(r"stratum\+(tcp|ssl)://|\bxmrig\b|\bminerd\b|coinhive|/dev/tcp/", re.IGNORECASE)
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*(?!utf-?8\b)[-\w.]+", re.MULTILINE | re.IGNORECASE)
"""As PEP 263 has it: the first two lines may say how the bytes are to be read."""
_GATHERS = frozenset({"repr", "str", "print", "dumps", "sorted", "pformat", "pprint"})


@dataclass(slots=True)
class Seen:
    """What was seen in one file."""

    findings: list[Finding] = field(default_factory=list[Finding])
    said: list[str] = field(default_factory=list[str])
    """What its expressions amount to."""
    starts: bool = False
    """Whether it can start programs."""


def look(path: str, text: str, *, network: bool) -> Seen:
    """What the rules find in one file; ``network`` is whether hosts were asked for."""
    if _CODING.search("\n".join(text.split("\n", 2)[:2])):
        return Seen([security("audit.coding", "it asks to be read in another encoding than it is looked at", path)])
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        return Seen([functional("audit.syntax", f"it is no Python: {error}", path, line)])
    except (RecursionError, MemoryError):
        return Seen([security("audit.deep", "it is nested too deeply to be looked at", path)])
    seen = Seen()
    seen.findings += _Look(path, tests=path.startswith("tests/"), network=network).all(tree, seen)
    return seen


class _Look:
    def __init__(self, path: str, *, tests: bool, network: bool) -> None:
        self._path = path
        self._tests = tests
        self._network = network
        self._docs: set[int] = set()
        self._harmless = False
        self._environment = False
        self._folder = Folder(ast.Module([], []))
        self._origins = Origins(ast.Module([], []))
        self._ordinary = Ordinary(ast.Module([], []), Origins(ast.Module([], [])))
        self._destinations = Destinations(ast.Module([], []), self._origins)
        self._clock = Clock(ast.Module([], []), self._folder, Origins(ast.Module([], [])))

    def all(self, tree: ast.Module, seen: Seen) -> Iterator[Finding]:
        self._docs = {id(text) for each in ast.walk(tree) for text in shapes.description(each)}
        self._harmless = shapes.is_harmless(tree)
        self._environment = any(
            (isinstance(each, ast.Attribute) and each.attr in shapes.VARIABLES)
            or (isinstance(each, ast.Name) and each.id in shapes.VARIABLES)
            or (isinstance(each, ast.alias) and each.name in shapes.VARIABLES)
            or (isinstance(each, ast.Constant) and isinstance(each.value, str) and "environ" in each.value)
            for each in ast.walk(tree)
        )
        self._folder = Folder(tree)
        origins = self._origins = Origins(tree)
        self._clock = Clock(tree, self._folder, origins, made=not self._tests)
        self._ordinary = Ordinary(tree, origins, reserved=RESERVED)
        if not self._tests:
            self._destinations = Destinations(tree, origins)
        for node in ast.walk(tree):
            yield from self._statement(node)
            yield from self._expression(node)
        yield from variables.findings(self._path, tree, self._folder)
        if not self._tests:
            yield from self._destinations.findings(self._path)
            yield from hiding.findings(
                self._path, tree, self._folder, network=self._network, text=self._text, said=seen.said
            )
            reaches = Reaches(self._path, tree, self._folder, origins, self._ordinary, network=self._network)
            seen.starts = reaches.starts
            yield from reaches.findings(lambda code: look(self._path, code, network=self._network).findings)
            if reaches.starts:
                yield from self._commands(tree)

    def _commands(self, tree: ast.Module) -> Iterator[Finding]:
        """Commands that stand somewhere in a file that can start programs; how to install something may be help."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self._docs:
                yield from (each for each in shells.commands(self._path, node.value) if each.code != "audit.install")

    def _statement(self, node: ast.AST) -> Iterator[Finding]:
        match node:
            case ast.Import(names=names):
                for each in names:
                    if each.name != "socket" or each.asname or not self._harmless:
                        yield from self._imported(each.name, node.lineno)
            case ast.ImportFrom(module="socket", names=names) if {each.name for each in names} <= shapes.HARMLESS:
                pass
            case ast.ImportFrom(level=level) if level:
                pass  # of its own, which is looked at
            case ast.ImportFrom(module=module, names=names):
                for name in (module or "", *(f"{module or ''}.{each.name}" for each in names)):
                    yield from self._imported(name, node.lineno)
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from self._assigned(target)
            case _:
                pass

    def _expression(self, node: ast.AST) -> Iterator[Finding]:
        match node:
            case ast.Call():
                yield from self._called(node)
                if shapes.callee(node.func)[1] in {"join", "joinpath"}:
                    yield from self._text(shapes.joined(node), node.lineno)
            case ast.BinOp(op=ast.Div(), lineno=line):
                yield from self._text(shapes.joined(node), line)
            case ast.Attribute(attr=name, lineno=line) if name in _FRAMES:
                yield self._hit("introspection", f"it reaches into the interpreter: {name}", line)
            case ast.Name(id=name, lineno=line) if name in {"__builtins__", "__loader__", "__import__"}:
                yield self._hit("introspection", f"it reaches into the interpreter: {name}", line)
            case ast.Name(id=name, ctx=ast.Load(), lineno=line) if name in {"eval", "exec"}:
                yield self._hit("dynamic-code", f"it runs text as code: {name}", line)
            case ast.comprehension(ifs=[*_, ast.expr() as kept]) if shapes.is_prefixed(kept, self._folder):
                pass
            case ast.For(iter=whole) | ast.comprehension(iter=whole) if shapes.is_environment(whole):
                yield self._mend(
                    "environment", "it goes through all variables: read those that you need by name", whole
                )
            case ast.For(target=ast.Name(id=name), iter=numbers) if shapes.is_numbers(numbers) and shapes.tries(
                node, name
            ):
                yield self._hit("descriptors", "it tries descriptors that it did not open", node.lineno)
            case ast.Compare(left=left, comparators=[right], lineno=line) if self._clock.dated(left, right):
                yield self._hit("time", "it does something else before or after a fixed date", line)
            case ast.Match(subject=subject, cases=cases, lineno=line) if any(
                isinstance(each, ast.MatchValue) and self._clock.dated(subject, each.value)
                for case in cases
                for each in ast.walk(case.pattern)
            ):
                yield self._hit("time", "it does something else on a fixed date", line)
            case ast.Constant(value=str(value), lineno=line) if id(node) not in self._docs:
                yield from self._text(value, line)
            case _:
                pass

    def _hit(self, code: str, why: str, line: int) -> Finding:
        return security(f"audit.{code}", why, self._path, line)

    def _mend(self, code: str, why: str, node: ast.expr) -> Finding:
        return functional(f"audit.{code}", why, self._path, node.lineno)

    def _imported(self, name: str, line: int) -> Iterator[Finding]:
        first = name.partition(".")[0]
        if name in NETWORK or first in NETWORK:
            if not self._network:
                yield self._hit("network", f"it uses the network ({name}) and declares no host", line)
        elif first in KERNEL:
            yield self._hit("native", f"it calls the system below Python: {name}", line)
        elif first in OBJECTS:
            yield self._hit("objects", f"it makes objects of bytes, which runs what they say: {name}", line)
        elif first in IMPORTS or first == "builtins":
            tested = self._tests and first in TESTED_BY
            if not tested and not (first == "importlib" and self._ordinary.imports):
                yield self._hit("imports", f"it changes or bypasses how modules are imported: {name}", line)
        elif first == "mock" or name.startswith("unittest.mock"):
            if not self._tests:
                yield self._hit("harness", "it replaces what its tests use", line)
        elif first in {"pytest", "_pytest", "pluggy", "iniconfig"} and not self._tests:
            yield self._hit("harness", "it looks at what runs its tests", line)
        elif first in {"_pytest", "pluggy", "iniconfig"}:
            yield self._hit("harness", f"it looks at what runs it: {name}", line)

    def _called(self, node: ast.Call) -> Iterator[Finding]:
        owner, name = shapes.callee(node.func)
        if (
            (name in {"eval", "exec", "execfile"} and not owner)
            or name in _RUNS_TEXT - {"compile", "eval", "exec"} - (LOADS_FILES if self._tests else frozenset())
            or (name == "compile" and not owner and self._origins.of(node.func) != "re.compile")
        ):
            yield self._hit("dynamic-code", f"it runs text as code: {name}", node.lineno)
        elif name == "__import__":
            yield self._hit("imports", "it imports what no import says", node.lineno)
        elif name == "_exit" or (owner == "os" and name in {"abort", "kill", "killpg"} and self._kills_itself(node)):
            yield self._hit("exit", f"it ends the interpreter past everything else: {name}", node.lineno)
        elif name in {"getattr", "setattr", "delattr"} and not owner:
            yield from self._attribute(name, node)
        elif name == "register" and owner == "atexit" and not self._ordinary.is_one(node.func):
            yield self._hit("exit", "it runs something after it has ended", node.lineno)
        elif name in _GATHERS and node.args and shapes.is_environment(node.args[0]):
            yield self._mend("environment", "it gathers all variables: read those that you need by name", node)
        elif name == "globals" and not owner:
            yield self._hit("introspection", "it reaches into the interpreter: globals()", node.lineno)
        elif owner in {"os", "subprocess"}:
            yield from self._started(owner, name, node)
        elif name in {"open", "Path"}:
            for each in node.args[:1]:
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and self._is_foreign(each.value):
                    yield self._hit("place", f"it opens what is not a skill's: {each.value}", node.lineno)

    def _is_foreign(self, path: str) -> bool:
        """Whether it names a place that is not a skill's, and not only where its data would be misplaced."""
        return _PLACES.search(path) is not None and path not in self._destinations.texts

    def _kills_itself(self, node: ast.Call) -> bool:
        return shapes.callee(node.func)[1] == "abort" or any(
            isinstance(each, ast.Call) and shapes.callee(each.func)[1] in {"getpid", "getppid", "getpgrp"}
            for argument in node.args
            for each in ast.walk(argument)
        )

    def _attribute(self, name: str, node: ast.Call) -> Iterator[Finding]:
        if len(node.args) < 2:
            return
        which = node.args[1]
        if isinstance(which, ast.Constant) and isinstance(which.value, str):
            if which.value in _UNREACHED:
                yield self._hit("introspection", f"it reaches by a word for {which.value}", node.lineno)
        elif not isinstance(which, ast.Name) and not members.are_its_own(node, self._folder, self._origins, _UNREACHED):
            yield self._hit("pieces", f"{name} with a name that is made of pieces", node.lineno)
        elif isinstance(node.args[0], ast.Name) and node.args[0].id in {"os", "sys", "subprocess", "builtins"}:
            yield self._hit("pieces", f"{name} with a name that is not seen", node.lineno)

    def _started(self, owner: str, name: str, node: ast.Call) -> Iterator[Finding]:
        if owner == "os" and name in {"system", "popen"}:
            yield advice("audit.shell", f"a shell is started: os.{name}", self._path, node.lineno)
        if any(word.arg == "shell" and not shapes.is_false(word.value) for word in node.keywords):
            yield advice("audit.shell", "a shell is started", self._path, node.lineno)
        words = " ".join(
            each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )
        if re.search(r"\b(pip3?|uv|conda|npm|apt(-get)?|gem|cargo)\s+(pip\s+)?(install|add|sync|i)\b", words):
            yield self._hit("install", "it installs packages by itself", node.lineno)

    def _assigned(self, target: ast.expr) -> Iterator[Finding]:
        match target:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in {"builtins", "sys", "os", "subprocess"}:
                if f"{owner}.{name}" not in (_PUT_IN_PLACE | _BY_TESTS if self._tests else _PUT_IN_PLACE):
                    yield self._hit("patch", f"it replaces {owner}.{name}", target.lineno)
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id="sys"), attr="modules")):
                yield self._hit("patch", "it replaces a module", target.lineno)
            case _:
                pass

    def _text(self, value: str, line: int) -> Iterator[Finding]:
        if self._tests:
            return
        if (found := _PLACES.search(value)) and self._is_foreign(value):
            yield self._hit("place", f"it names a place that is not a skill's: {found.group().strip()}", line)
        if self._environment and (found := _SECRETS.search(value)):
            yield self._hit("place", f"it looks for variables of secrets: {found.group()}", line)
        if _RUN.search(value):
            yield self._hit("dynamic-code", "a text holds code that imports", line)
        if _REACHED.match(value):
            yield self._hit("introspection", "a text reaches into what it is looked up in", line)
        if found := _HARNESS.search(value):
            yield self._hit("harness", f"it asks where it runs: {found.group()}", line)
        if found := _MINING.search(value):
            yield self._hit("mining", f"it names what no skill needs: {found.group()}", line)
