"""Rules on code that hides what it does: words in pieces or encoded, and modules reached through other ones."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.audit import shells
from hermes_exec_policies.gate.verdict import Finding, security

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hermes_exec_policies.gate.audit.folded import Folder

_CODE = re.compile(
    r"^\s*(import|from)\s+\w+|\b(exec|eval|compile|__import__)\s*\(|\b(os|subprocess|socket|sys)\.\w+", re.MULTILINE
)
_WORDS = frozenset(
    {"system", "popen", "exec", "eval", "compile", "__import__", "import_module", "socket", "ctypes", "subprocess",
     "os", "builtins", "__builtins__", "__globals__", "__subclasses__", "CDLL", "dlopen", "pickle", "marshal"}
)  # fmt: skip
_MODULES = frozenset({"os", "_os", "sys", "_sys", "subprocess", "builtins", "socket", "_socket", "importlib"})
_NATIVE = frozenset(
    {"cdll", "CDLL", "PyDLL", "dlopen", "LoadLibrary", "pythonapi", "enable_load_extension", "load_extension"}
)
_CONNECTS = frozenset(
    {"open_connection", "create_connection", "create_server", "start_server", "create_datagram_endpoint",
     "sock_connect", "getaddrinfo", "gethostbyname", "urlopen", "urlretrieve", "HTTPHandler", "SMTPHandler",
     "SocketHandler", "DatagramHandler", "SysLogHandler", "HTTPConnection", "HTTPSConnection"}
)  # fmt: skip
_LOADS = frozenset({"read_pickle", "unsafe_load", "UnsafeLoader", "full_load_all"})
_STREAMS = frozenset({"PIPE", "DEVNULL", "STDOUT", "Process"})
_FORMAT = re.compile(r"\{[^{}]*\.__\w+__|\{[^{}]*\[__\w+__\]")
_WRITTEN = re.compile(r"/(app/data|dev/shm|tmp|var/tmp)(/|$)|\.$")
_DECODES = re.compile(r"decode|decompress|fromhex|unhexlify|a2b_|chr$|bytes$")


def findings(
    path: str, tree: ast.Module, folder: Folder, *, network: bool, text: Callable[[str, int], Iterator[Finding]],
    said: list[str],
) -> Iterator[Finding]:  # fmt: skip
    """What the rules find in one file.

    ``text`` looks at a text as if it stood there in plain words; ``said`` is given what expressions amount to.
    """

    def hit(code: str, why: str, line: int) -> Finding:
        return security(f"audit.{code}", why, path, line)

    imported = {
        (each.asname or each.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
    }
    streams = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _STREAMS}
    for grown in folder.grown.values():
        yield from text(grown, 0)
        yield from shells.commands(path, grown)
        said.append(grown)
    for node in ast.walk(tree):
        match node:
            case ast.BinOp() | ast.Call() | ast.Subscript() | ast.JoinedStr():
                yield from _hidden(path, node, folder, hit, text, said)
                if isinstance(node, ast.Call):
                    yield from _called(node, folder, hit)
            case ast.Attribute(value=ast.Name(id=owner), attr=name, lineno=line) if (
                owner in imported and name in _MODULES and not (owner == "asyncio" and id(node) in streams)
            ):
                yield hit("pieces", f"it reaches a module through another one: {owner}.{name}", line)
            case ast.Attribute(value=ast.Name(id=owner), attr="__dict__", lineno=line) if owner in _MODULES:
                yield hit("pieces", f"it looks up names of {owner}", line)
            case ast.Attribute(attr="__self__", lineno=line):
                yield hit("introspection", "it reaches into the interpreter: __self__", line)
            case ast.Attribute(attr=name, lineno=line) if name in _NATIVE:
                yield hit("native", f"it calls the system below Python: {name}", line)
            case ast.Attribute(attr=name, lineno=line) if name in _CONNECTS and not network:
                yield hit("network", f"it uses the network ({name}) and declares no host", line)
            case ast.Attribute(attr=name, lineno=line) if name in _LOADS:
                yield hit("objects", f"it makes objects of bytes, which runs what they say: {name}", line)
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True) as value):
                yield hit("objects", "it makes objects of bytes, which runs what they say: allow_pickle", value.lineno)
            case ast.Constant(value=str(value), lineno=line) if _FORMAT.search(value):
                yield hit("introspection", "a format reaches into what it is given", line)
            case _:
                pass


def _hidden(
    path: str, node: ast.expr, folder: Folder, hit: Callable[[str, str, int], Finding],
    text: Callable[[str, int], Iterator[Finding]], said: list[str],
) -> Iterator[Finding]:  # fmt: skip
    """What is said in pieces or in an encoding, read as what it says."""
    value = folder.value(node)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str) or len(value) < 2:
        return
    said.append(value)
    yield from text(value, node.lineno)
    yield from shells.commands(path, value)
    if value in _WORDS:
        yield hit("pieces", f"a word is made of pieces: {value}", node.lineno)
    if _CODE.search(value) and any(_DECODES.search(name) for name in _names(node)):
        yield hit("encoded", "code is hidden by an encoding", node.lineno)


def _names(node: ast.expr) -> Iterator[str]:
    """The names of what is called in an expression."""
    for each in ast.walk(node):
        match each:
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                yield name
            case _:
                pass


def _called(node: ast.Call, folder: Folder, hit: Callable[[str, str, int], Finding]) -> Iterator[Finding]:
    match node:
        case ast.Call(func=ast.Name(id="vars"), args=[ast.Name(id=owner)]) if owner in _MODULES:
            yield hit("pieces", f"it looks up names of {owner}", node.lineno)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(word)), *_]) if (
            name in {"attrgetter", "methodcaller"} and word.rpartition(".")[2] in _WORDS
        ):
            yield hit("pieces", f"it reaches by a word for {word}", node.lineno)
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="path"), attr="insert" | "append"),
            args=[*_, where],
        ):
            place = folder.value(where)
            if isinstance(place, str) and _WRITTEN.match(place):
                yield hit("imports", f"it imports what it wrote itself, from {place}", node.lineno)
        case _:
            pass
