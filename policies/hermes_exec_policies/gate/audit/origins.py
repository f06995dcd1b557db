"""What names stand for in one file: ``o.system`` is ``os.system`` after ``import os as o``."""

from __future__ import annotations

import ast


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
