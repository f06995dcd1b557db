"""The signature of a skill's function, as its script declares it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

_TYPES: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "dict": {"type": "object"},
    "None": {"type": "null"},
    "List": {"type": "array"},
    "Dict": {"type": "object"},
    "Sequence": {"type": "array"},
    "Mapping": {"type": "object"},
    "Any": {},
    "object": {},
}
_ERROR = re.compile(r"^\s*(?:[\w.]+\.)?(\w+):", re.MULTILINE)
_NOT_JSON = frozenset({"bytes", "bytearray", "memoryview", "set", "frozenset", "tuple", "Path", "complex", "Callable"})


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a skill's function, as declared in its source."""

    function: str
    schema: dict[str, Any]
    documented: bool
    """Whether it has a docstring."""
    typed: bool
    """Whether every argument and the result have a type."""
    json: bool
    """Whether JSON can represent every type."""
    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = field(default=())
    raises: frozenset[str] = frozenset()
    """The names of errors in the section ``Raises:`` of its docstring."""


def read_signature(tree: ast.Module, names: tuple[str, ...]) -> Signature | None:
    """Return the signature of the first of ``names`` that the module defines at its top level, or None."""
    defined = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }  # the last definition of a name counts, as in Python
    for name in names:
        if name in defined:
            return _read(defined[name])
    return None


def describe_signature(script: str, module: str) -> tuple[str, dict[str, Any]]:
    """Return the signature of a script's function as text and as JSON Schema; both are empty if it has none."""
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", {}
    found = read_signature(tree, ("run", module))
    node = next(
        (
            each
            for each in reversed(tree.body)
            if isinstance(each, ast.FunctionDef) and found and each.name == found.function
        ),
        None,
    )
    if found is None or node is None:
        return "", {}
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    call = f"def {node.name}({ast.unparse(node.args)}){returns}:\n    {ast.get_docstring(node) or '...'}"
    return call, found.schema


def _read(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    taken = node.args
    arguments = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs]
    defaulted = len(taken.defaults)
    plain = [*taken.posonlyargs, *taken.args]
    required = [each.arg for each in plain[: len(plain) - defaulted]]
    required += [each.arg for each, value in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if value is None]
    properties = {each.arg: _schema(each.annotation) for each in arguments}
    annotations = [each.annotation for each in arguments]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": taken.kwarg is not None,
    }
    return Signature(
        function=node.name,
        schema=schema,
        documented=bool(ast.get_docstring(node)),
        typed=all(each is not None for each in (*annotations, node.returns)),
        json=all(_is_json(each) for each in (*annotations, node.returns)),
        names=tuple(properties),
        required=tuple(required),
        optional=tuple(each for each in properties if each not in required),
        raises=frozenset(_ERROR.findall((ast.get_docstring(node) or "").partition("Raises:")[2])),
    )


def _schema(node: ast.expr | None) -> dict[str, Any]:
    """Return the JSON Schema of a type; an empty one for an unknown type."""
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):
            return _schema(_parse_type(text))
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return dict(_TYPES.get(name, {}))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return {"anyOf": [_schema(left), _schema(right)]}
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic(name, inner)
        case _:
            return {}


def _generic(name: str, inner: ast.expr) -> dict[str, Any]:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    match name:
        case "list" | "List" | "Sequence" | "Iterable":
            return {"type": "array", "items": _schema(parts[0])}
        case "dict" | "Dict" | "Mapping" if len(parts) == 2:
            return {"type": "object", "additionalProperties": _schema(parts[1])}
        case "Optional":
            return {"anyOf": [_schema(parts[0]), {"type": "null"}]}
        case "Union":
            return {"anyOf": [_schema(part) for part in parts]}
        case "Literal" if all(isinstance(part, ast.Constant) for part in parts):
            values = [part.value for part in parts if isinstance(part, ast.Constant)]
            return {"enum": values} if all(isinstance(each, str | int | float | None) for each in values) else {}
        case _:
            return dict(_TYPES.get(name, {}))


def _parse_type(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body if len(text) < 200 else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _is_json(node: ast.expr | None) -> bool:
    return node is None or not any(
        isinstance(each, ast.Name | ast.Attribute)
        and (each.id if isinstance(each, ast.Name) else each.attr) in _NOT_JSON
        for each in ast.walk(node)
    )
