"""Where a skill writes, as far as its text says so.

A run writes below /app/data alone. A literal path of a data file below the folder of skills, /tmp, a home or the
working folder is a mistake about that, which a model can correct. Hidden files and the parts of skills are not.
"""

from __future__ import annotations

import ast
import posixpath
import re
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.audit.origins import find_assignments
from hermes_exec_policies.gate.verdict import Finding, functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec_policies.gate.audit.origins import Origins

ONLY_DATA = "a run writes below /app/data alone"
_UNWRITABLE = re.compile(r"/(app/skills|tmp|var/tmp|root|home/[^/]+)(/|$)")
_ELSEWHERE = re.compile(r"^(/(app/skills|tmp|var/tmp|root|home/[^/]+)(/|$)|(~|\.)?/+)")
_HIDDEN = re.compile(r"(^|/)\.")
_CODE = re.compile(r"\.(py\w?|pth|so|sh|bash)$|/(SKILL\.md|scripts|tests)(/|$)")
_UNKNOWN = "*"
_DEEP = 8
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
