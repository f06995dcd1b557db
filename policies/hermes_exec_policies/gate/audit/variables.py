"""A rule on variables: whoever reads one that is called like a secret wants what is somebody else's."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.verdict import Finding, security

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec_policies.gate.audit.folded import Folder

_SECRET = re.compile(
    r"(\w+_)?((API|ACCESS|SECRET|PRIVATE|AUTH|SIGNING|ENCRYPTION|DEPLOY|MASTER)_?KEY(_ID)?|TOKEN|SECRET"
    r"|PASSW(OR)?D|PASSPHRASE|CREDENTIALS?|(DB|DATABASE|REDIS|POSTGRES(QL)?|MYSQL|MONGO(DB)?)_(URL|URI|DSN))(_FILE|_PATH)?"
    r"|PGPASS(WORD|FILE)|MYSQL_PWD|SSH_AUTH_SOCK|KUBECONFIG|NETRC",
    re.IGNORECASE,
)
_METHODS = frozenset({"get", "pop", "setdefault", "__getitem__"})
_MODULES = frozenset({"os", "posix"})
_ALL = frozenset({"environ", "environb"})
_GETS = frozenset({"getenv", "getenvb"})


def findings(path: str, tree: ast.Module, folder: Folder) -> Iterator[Finding]:
    """Every variable of a secret that one file reads, or asks whether it is set."""
    known = _Known(tree)
    for node in ast.walk(tree):
        name = known.read(node)
        if name is None:
            continue
        value = folder.value(name)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        # A name that is not seen may be any that stands in the file.
        words = [value] if isinstance(value, str) else _capitals(tree)
        if found := next((word for word in words if _SECRET.fullmatch(word)), ""):
            yield security("audit.secret-variable", f"it reads a variable of a secret: {found}", path, name.lineno)


class _Known:
    """By which names one file calls the module, all variables, and what gets one of them."""

    def __init__(self, tree: ast.Module) -> None:
        self._modules: set[str] = set(_MODULES)
        self._all: set[str] = set()
        self._gets: set[str] = set()
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    self._modules |= {each.asname for each in names if each.name in _MODULES and each.asname}
                case ast.ImportFrom(module=module, names=names) if module in _MODULES:
                    self._all |= {each.asname or each.name for each in names if each.name in _ALL}
                    self._gets |= {each.asname or each.name for each in names if each.name in _GETS}
                case _:
                    pass
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._is_all(value):
                    self._all.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._is_get(value):
                    self._gets.add(name)
                case _:
                    pass

    def read(self, node: ast.AST) -> ast.expr | None:
        """The name of the variable that an expression reads."""
        match node:
            case ast.Subscript(value=value, slice=name, ctx=ast.Load()) if self._is_all(value):
                return name
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=[name, *_]) if (
                method in _METHODS and self._is_all(value)
            ):
                return name
            case ast.Call(func=function, args=[name, *_]) if self._is_get(function):
                return name
            case ast.Compare(left=name, ops=[ast.In() | ast.NotIn()], comparators=[value]) if self._is_all(value):
                return name
            case _:
                return None

    def _is_all(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._all
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return module in self._modules and name in _ALL
            case ast.Call(func=ast.Name(id="dict"), args=[inner]):
                return self._is_all(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr="copy")):
                return self._is_all(inner)
            case _:
                return False

    def _is_get(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._gets
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return module in self._modules and name in _GETS
            case _:
                return False


def _capitals(tree: ast.Module) -> list[str]:
    """The texts of a file that are written as variables are."""
    return [
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.isupper()
    ]
