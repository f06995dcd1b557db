"""What expressions of constants amount to: words that are joined, turned round or decoded are read as what they say.

Nothing of the skill runs: a few operations on texts, bytes and numbers are done here, and every result is bounded.
"""

from __future__ import annotations

import ast
import base64
import binascii
import codecs
import zlib
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 1 << 16
_DEEP = 60


def _octets(value: Any) -> bytes:
    """Of numbers alone; of one number it would be that many bytes."""
    return bytes(cast("list[int]", value)) if isinstance(value, list | tuple) else b""


def _reversed(value: list[Any]) -> list[Any]:
    return list(reversed(value))


def _inflated(data: bytes) -> bytes:
    # The window of zlib, or that of gzip, as the data says.
    return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, _MOST)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "b64decode": base64.b64decode, "urlsafe_b64decode": base64.urlsafe_b64decode, "b32decode": base64.b32decode,
    "b16decode": base64.b16decode, "b85decode": base64.b85decode, "a85decode": base64.a85decode,
    "unhexlify": binascii.unhexlify, "a2b_hex": binascii.unhexlify, "a2b_base64": binascii.a2b_base64,
    "decodebytes": base64.decodebytes, "fromhex": bytes.fromhex, "decompress": _inflated,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "chr": chr, "ord": ord, "str": str, "int": int, "bytes": _octets, "bytearray": _octets, "list": list, "tuple": list,
    "reversed": _reversed, **_DECODERS,
}  # fmt: skip
_CODECS = frozenset(
    {"rot13", "rot_13", "rot-13", "hex", "base64", "utf-8", "utf8", "ascii", "latin-1", "unicode_escape"}
)
_PLAIN = frozenset(
    {"lower", "upper", "strip", "swapcase", "lstrip", "rstrip", "replace", "removeprefix", "removesuffix"}
)


class Unknown(Exception):
    """It is not made of constants alone."""


class Folder:
    """Folds expressions of one file; ``names`` are those that are assigned one constant and nothing else."""

    def __init__(self, tree: ast.Module) -> None:
        self._names: dict[str, Any] = {}
        assigned: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    assigned.setdefault(name, []).append(value)
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    assigned.setdefault(name, []).append(None)
                case _:
                    pass
        for name, values in assigned.items():
            if len(values) == 2 and values.count(None) == 1:  # the assignment, and its name as a name
                value = self.value(next(each for each in values if each is not None))
                if value is not None:
                    self._names[name] = value

    def value(self, node: ast.expr) -> Any:
        """What it amounts to; None where that is not known."""
        try:
            return _bounded(self._fold(node, {}, _DEEP))
        except (Unknown, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError, zlib.error):
            return None

    def _fold(self, node: ast.expr, local: dict[str, Any], deep: int) -> Any:
        if deep < 0:
            raise Unknown

        def fold(each: ast.expr) -> Any:
            return _bounded(self._fold(each, local, deep - 1))

        match node:
            case ast.Constant(value=str() | bytes() | int() as value):
                return value
            case ast.Name(id=name) if name in local or name in self._names:
                return local.get(name, self._names.get(name))
            case ast.List(elts=many):
                return [fold(each) for each in many]
            case ast.Tuple(elts=many):
                return tuple(fold(each) for each in many)
            case ast.JoinedStr(values=parts):
                return "".join(
                    str(fold(each.value if isinstance(each, ast.FormattedValue) else each)) for each in parts
                )
            case ast.BinOp(left=left, op=op, right=right):
                return _combined(op, fold(left), fold(right))
            case ast.Subscript(value=whole, slice=ast.Slice(lower=lower, upper=upper, step=step)):
                bounds = [None if each is None else fold(each) for each in (lower, upper, step)]
                return fold(whole)[slice(*bounds)]
            case ast.Subscript(value=whole, slice=index):
                return fold(whole)[fold(index)]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -fold(operand)
            case ast.GeneratorExp(elt=elt, generators=[one]) | ast.ListComp(elt=elt, generators=[one]):
                return self._each(elt, one, local, deep)
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._called(function, arguments, fold)
            case _:
                raise Unknown

    def _each(self, elt: ast.expr, one: ast.comprehension, local: dict[str, Any], deep: int) -> list[Any]:
        if not isinstance(one.target, ast.Name) or one.ifs:
            raise Unknown
        whole = self._fold(one.iter, local, deep - 1)
        return [self._fold(elt, {**local, one.target.id: each}, deep - 1) for each in whole[:4096]]

    def _called(self, function: ast.expr, arguments: list[ast.expr], fold: Callable[[ast.expr], Any]) -> Any:
        match function, arguments:
            case ast.Name(id="map"), [ast.Name(id="chr"), one]:
                return [chr(each) for each in fold(one)]
            case ast.Name(id=name), [one, *more] if name in _FUNCTIONS:
                return _FUNCTIONS[name](fold(one), *map(fold, more))
            case ast.Attribute(attr=name), [one] if name in _DECODERS:
                return _DECODERS[name](fold(one))
            case ast.Attribute(value=ast.Name(id="codecs"), attr="decode" | "encode"), [one, how]:
                return _coded(fold(one), fold(how))
            case ast.Attribute(value=whole, attr="join"), [one]:
                return fold(whole).join(fold(one))
            case ast.Attribute(value=whole, attr="decode" | "encode" as name), how:
                return getattr(fold(whole), name)(*(fold(each) for each in how[:1] if fold(each) in _CODECS))
            case ast.Attribute(value=whole, attr=name), how if name in _PLAIN:
                return getattr(str(fold(whole)), name)(*map(fold, how))
            case ast.Attribute(value=whole, attr="format"), how if "%" not in (text := str(fold(whole))):
                return text.replace("{}", "%s") % tuple(map(fold, how))
            case _:
                raise Unknown


def _bounded(value: Any) -> Any:
    if isinstance(value, str | bytes | list) and len(cast("str", value)) > _MOST:
        raise Unknown
    return cast("Any", value)


def _combined(op: ast.operator, left: Any, right: Any) -> Any:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.BitXor():
            return left ^ right
        case ast.Mod():
            return left % right
        case _:
            raise Unknown


def _coded(value: Any, how: str) -> Any:
    if how not in _CODECS:
        raise Unknown
    return codecs.decode(value, how)
