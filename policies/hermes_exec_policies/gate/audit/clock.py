"""What of a file's text is the time now, and what a moment: skills that change on a day are made of both."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.audit.shapes import callee

if TYPE_CHECKING:
    from hermes_exec_policies.gate.audit.folded import Folder
    from hermes_exec_policies.gate.audit.origins import Origins

_NOW = frozenset(
    {"time.time", "time.time_ns", "time.gmtime", "time.localtime", "time.strftime", "time.ctime", "time.asctime",
     "time.clock_gettime", "time.clock_gettime_ns", "email.utils.formatdate", "email.utils.localtime", "uuid.uuid1"}
)  # fmt: skip
_NAMED = frozenset({"now", "utcnow", "today"})
"""Of a class of these, and of what is only called like one."""
_CALENDARS = frozenset({"datetime", "pandas", "numpy", "arrow", "pendulum"})
_FILES = frozenset({"os.path.getmtime", "os.path.getctime", "os.path.getatime"})
_MADE = frozenset({"st_mtime", "st_ctime", "st_atime", "st_birthtime", "st_mtime_ns", "st_ctime_ns"})
"""When a file was made, which in a sandbox is now."""
_RUNNING = frozenset({"time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns"})
_MOMENTS = frozenset({"datetime", "date", "fromisoformat", "fromtimestamp", "strptime", "Timestamp", "datetime64"})
_DATE = re.compile(r"\d{4}|[^\W\d]{3}")
"""A year, or a name of a day or a month."""
_COUNTS = frozenset({"time", "datetime", "date", "dt", "calendar", "int", "str", "float"})
_LARGE = 1000
_LONG_AGO = 1_000_000_000


class Clock:
    """What in a file is the time now, and what a moment that stands in its text, also by the names of these."""

    def __init__(self, tree: ast.Module, folder: Folder, origins: Origins, *, made: bool = False) -> None:
        """``made`` is whether what tells when a file was made counts as the time now."""
        self._made = made
        self._folder = folder
        self._origins = origins
        self._now: set[str] = set()
        self._fixed: set[str] = set()
        assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                assigned.setdefault(node.targets[0].id, []).append(node.value)
        for name, values in assigned.items():
            if all(map(self.is_now, values)):
                self._now.add(name)
            elif all(self._is_said(value) for value in values):
                self._fixed.add(name)

    def dated(self, left: ast.expr, right: ast.expr) -> bool:
        """Whether one side is what time it is, and the other one a moment that stands in the text."""
        for one, other in ((left, right), (right, left)):
            if isinstance(one, ast.Call) and self._origins.of(one.func) in _RUNNING and _is_number(other):
                return True
        if self.is_now(left) == self.is_now(right):
            return False
        now, other = (left, right) if self.is_now(left) else (right, left)
        value = self._folder.value(other)
        if isinstance(value, int) and any(
            isinstance(each, ast.Attribute) and each.attr in {"year", "tm_year"} for each in ast.walk(now)
        ):
            return True
        if (
            self._is_age(now)
            or self._is_since(now)
            or (isinstance(value, int) and value > _LARGE and self._is_calendar(now))
        ):
            return True
        return self._is_fixed(other) or (isinstance(value, int) and value > _LONG_AGO)

    def is_now(self, node: ast.expr) -> bool:
        """Whether it asks what time it is."""
        return any(
            (isinstance(each, ast.Call) and self._asks(each.func))
            or (self._made and isinstance(each, ast.Attribute) and each.attr in _MADE)
            or (isinstance(each, ast.Name) and each.id in self._now)
            for each in ast.walk(node)
        )

    def _asks(self, called: ast.expr) -> bool:
        if name := self._origins.of(called):
            first, last = name.partition(".")[0], name.rpartition(".")[2]
            return name in _NOW or (self._made and name in _FILES) or (first in _CALENDARS and last in _NAMED)
        owner, last = callee(called)
        return last in _NAMED and owner in {"?", "date", "datetime"}

    def _is_age(self, node: ast.expr) -> bool:
        """Whether it is how old its own file is, or a digest of the time now, which no honest comparison has."""
        return any(
            (isinstance(each, ast.Name) and each.id == "__file__")
            or (isinstance(each, ast.Call) and self._origins.of(each.func).partition(".")[0] in {"hashlib", "zlib"})
            for each in ast.walk(node)
        )

    def _is_since(self, node: ast.expr) -> bool:
        """Whether it is how long ago a moment is that stands in the text."""
        return any(
            isinstance(each, ast.BinOp)
            and isinstance(each.op, ast.Sub)
            and self.is_now(each.left)
            and (self._is_fixed(each.right) if isinstance(each.right, ast.Name) else self._is_said(each.right))
            for each in ast.walk(node)
        )

    def _is_calendar(self, node: ast.expr) -> bool:
        """Whether it is the time now, counted in another way, and neither a span nor a rest."""
        for each in ast.walk(node):
            match each:
                case ast.BinOp(op=ast.Mod() | ast.Sub()) | ast.Attribute(attr="microsecond"):
                    return False
                case ast.Name(id=name, ctx=ast.Load()) if name not in self._now | _COUNTS:
                    return False
                case _:
                    pass
        return True

    def _is_fixed(self, node: ast.expr) -> bool:
        """Whether it is a moment that stands in the text: a large number, or a date of numbers or of words."""
        match node:
            case ast.Name(id=name):
                return name in self._fixed
            case ast.Tuple(elts=many) | ast.List(elts=many) | ast.Set(elts=many):
                return any(map(self._is_fixed, many))
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                return self._is_fixed(left) or self._is_fixed(right)
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
                return any(
                    self._is_fixed(each) if isinstance(each, ast.Name) else self._is_said(each)
                    for each in (left, right)
                )
            case ast.Constant(value=int() | float() as value):
                return value > _LONG_AGO
            case ast.Constant(value=str(text)):
                return _DATE.search(text) is not None
            case ast.Call():
                return bool(node.args) and all(isinstance(each, ast.Constant) for each in node.args)
            case _:
                return False

    def _is_said(self, node: ast.expr) -> bool:
        """Whether it is a moment that stands in the text."""
        if not isinstance(node, ast.Call):
            return False
        name = self._origins.of(node.func).rpartition(".")[2] or callee(node.func)[1]
        return name in _MOMENTS and bool(node.args) and all(isinstance(each, ast.Constant) for each in node.args)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value > _LARGE
