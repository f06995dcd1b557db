"""What expressions of constants amount to: words that are joined, turned round or decoded are read as what they say.

Nothing of the skill runs: a few operations on texts, bytes and numbers are done here, and every result is bounded.
"""

from __future__ import annotations

import ast
import base64
import binascii
import bz2
import codecs
import html
import lzma
import re
import struct
import zlib
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 1 << 16
_DEEP = 60
_SCOPES = (
    ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.For, ast.While, ast.With, ast.Try,
)  # fmt: skip
_MEMORY = 64 << 20
_WIDE = re.compile(r"\d{4}|\*")
"""A format of so many places that it is made to fill the memory."""


def _octets(value: Any) -> bytes:
    """Of numbers alone; of one number it would be that many bytes."""
    return bytes(cast("list[int]", value)) if isinstance(value, list | tuple) else b""


def _reversed(value: list[Any]) -> list[Any]:
    return list(reversed(value))


def _inflated(data: bytes) -> bytes:
    if data.startswith(b"BZh"):
        return bz2.BZ2Decompressor().decompress(data, _MOST)
    if data.startswith((b"\xfd7zXZ", b"]\0\0")):
        return lzma.LZMADecompressor(memlimit=_MEMORY).decompress(data, _MOST)
    # The window of zlib, or that of gzip, as the data says.
    return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, _MOST)


def _range(*bounds: int) -> list[int]:
    return list(range(*bounds)[:_MOST])


def _packed(form: str, *values: Any) -> bytes:
    if struct.calcsize(form) > _MOST:
        raise Unknown
    return struct.pack(form, *values)


def _octets_of(number: int, size: int, order: str = "big") -> bytes:
    if size > _MOST or order not in {"big", "little"}:
        raise Unknown
    return number.to_bytes(size, "big" if order == "big" else "little")


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "b64decode": base64.b64decode, "urlsafe_b64decode": base64.urlsafe_b64decode, "b32decode": base64.b32decode,
    "b16decode": base64.b16decode, "b85decode": base64.b85decode, "a85decode": base64.a85decode,
    "unhexlify": binascii.unhexlify, "a2b_hex": binascii.unhexlify, "a2b_base64": binascii.a2b_base64,
    "decodebytes": base64.decodebytes, "fromhex": bytes.fromhex, "decompress": _inflated, "unquote": unquote,
    "unescape": html.unescape,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "chr": chr, "ord": ord, "str": str, "int": int, "bytes": _octets, "bytearray": _octets, "list": list, "tuple": list,
    "reversed": _reversed, "range": _range, "dict": dict, "unquote": unquote, "unescape": html.unescape, **_DECODERS,
}  # fmt: skip
_CODECS = frozenset(
    {"rot13", "rot_13", "rot-13", "hex", "base64", "utf-8", "utf8", "ascii", "latin-1", "unicode_escape"}
)
_PLAIN = frozenset(
    {"lower", "upper", "strip", "swapcase", "lstrip", "rstrip", "replace", "removeprefix", "removesuffix", "translate"}
)


class Unknown(Exception):
    """It is not made of constants alone."""


_FAILS = (
    Unknown, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError, OSError, EOFError,
    zlib.error, lzma.LZMAError, struct.error,
)  # fmt: skip


class Folder:
    """Folds expressions of one file, with the names that are assigned one constant and nothing else."""

    def __init__(self, tree: ast.Module) -> None:
        self._names: dict[str, Any] = {}
        self._documents = {
            node.name: ast.get_docstring(node, clean=False)
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.grown: dict[str, str] = {}
        """Texts that are put together piece by piece, by the name that they have."""
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
        self._grow(tree)

    def _grow(self, tree: ast.Module) -> None:
        """``a = 'cu'; a += 'rl'``, in the order in which it stands there."""
        for scope in ast.walk(tree):
            texts: dict[str, str] = {}
            if not isinstance(scope, _SCOPES):
                continue
            for node in scope.body:
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        texts[name] = found if isinstance(found := self.value(value), str) else ""
                    case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value) if texts.get(name):
                        more = self.value(value)
                        if isinstance(more, str):
                            texts[name] = self.grown[name] = (texts[name] + more)[:_MOST]
                    case _:
                        pass

    def value(self, node: ast.expr) -> Any:
        """What it amounts to; None where that is not known."""
        try:
            return _bounded(self._fold(node, {}, _DEEP))
        except _FAILS:
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
            case ast.Attribute(value=ast.Name(id=name), attr="__doc__") if self._documents.get(name):
                return self._documents[name]
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
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._called(function, arguments, fold)
            case _:
                return self._gathered(node, local, deep, fold)

    def _gathered(self, node: ast.expr, local: dict[str, Any], deep: int, fold: Callable[[ast.expr], Any]) -> Any:
        match node:
            case ast.List(elts=many):
                return [fold(each) for each in many]
            case ast.Tuple(elts=many):
                return tuple(fold(each) for each in many)
            case ast.Dict(keys=keys, values=values):
                return {fold(key): fold(value) for key, value in zip(keys, values, strict=True) if key is not None}
            case ast.GeneratorExp(elt=elt, generators=[one]) | ast.ListComp(elt=elt, generators=[one]):
                return self._each(elt, one, local, deep)
            case ast.DictComp(key=key, value=value, generators=[one]):
                return dict(zip(self._each(key, one, local, deep), self._each(value, one, local, deep), strict=True))
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
            case ast.Name(id="map"), [ast.Lambda(args=ast.arguments(args=[only]), body=body), one]:
                return [self._fold(body, {only.arg: each}, _DEEP // 2) for each in fold(one)[:4096]]
            case ast.Attribute(value=ast.Name(id="struct"), attr="pack"), [form, *values]:
                return _packed(fold(form), *map(fold, values))
            case ast.Attribute(attr="maketrans"), how:
                return str.maketrans(*map(fold, how))
            case ast.Attribute(value=whole, attr="to_bytes"), [size, *order]:
                return _octets_of(fold(whole), fold(size), *map(fold, order))
            case ast.Call(func=ast.Attribute(attr="getdecoder" | "getencoder"), args=[how]), [one]:
                return (_coded(fold(one), fold(how)),)
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
    if isinstance(value, str | bytes | list | dict) and len(cast("str", value)) > _MOST:
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
        case ast.Mod() if not (isinstance(left, str | bytes) and _WIDE.search(str(left))):
            return left % right
        case _:
            raise Unknown


def _coded(value: Any, how: str) -> Any:
    if how not in _CODECS:
        raise Unknown
    return codecs.decode(value, how)
