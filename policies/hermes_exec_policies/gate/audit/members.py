"""Names that code reaches members of an object by: those that are its own, and those that may be anything."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from hermes_exec_policies.gate.audit.folded import Folder
    from hermes_exec_policies.gate.audit.origins import Origins

_FAMILY = re.compile(r"[A-Za-z][A-Za-z0-9]*_")
"""What the names of methods of one kind begin with, as ``visit_``."""


def are_its_own(node: ast.Call, folder: Folder, origins: Origins, reserved: Collection[str]) -> bool:
    """Whether ``getattr`` and the like take the name of a field, of a table of the file, or of a family of methods.

    ``reserved`` are names that nobody may reach. Of a module, whose names are not its own, a table alone will do.
    """
    whole, which = node.args[:2]
    match which:
        case ast.Subscript(value=table):
            return _names(folder.value(table), reserved)
        case _ if isinstance(whole, ast.Name) and origins.of(whole):
            return False
        case ast.Attribute(value=ast.Name()):
            return True
        case (
            ast.JoinedStr(values=[ast.Constant(value=str(first)), *_])
            | ast.BinOp(left=ast.Constant(value=str(first)), op=ast.Add())
        ):
            return bool(_FAMILY.fullmatch(first)) and not any(each.startswith(first) for each in reserved)
        case _:
            return False


def _names(table: object, reserved: Collection[str]) -> bool:
    values: list[object] = []
    if isinstance(table, dict):
        values = list(table.values())  # pyright: ignore[reportUnknownArgumentType]  of constants
    elif isinstance(table, list | tuple):
        values = list(table)  # pyright: ignore[reportUnknownArgumentType]  the same
    return bool(values) and all(isinstance(each, str) and each not in reserved for each in values)
