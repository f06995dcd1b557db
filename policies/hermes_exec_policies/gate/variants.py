"""Variants of arguments with the same types, to check whether a function's result depends on them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Arguments = dict[str, Any] | list[Any]
_MOST = 10
_DEEPEST = 6
_SAMPLES: dict[str, Any] = {"string": "text", "integer": 7, "number": 2.5, "boolean": True}


def make_variants(arguments: Arguments, schema: Mapping[str, Any]) -> list[Arguments]:
    """Return variants of arguments, in order of how likely they are to be accepted and to change the result.

    Every value keeps its type and its position: numbers and texts are changed, lists and texts get longer or shorter.
    All arguments are changed together first, then each alone. ``schema`` has the types of items of empty lists.
    """
    filled = _fill(arguments, schema)
    found = [filled, *(_apply(filled, change) for change in _CHANGES)]
    for key in list(arguments) if isinstance(arguments, dict) else range(len(arguments)):
        for change in _CHANGES:
            other = arguments.copy()
            other[key] = change(cast("Any", filled)[key], 0)  # type: ignore[index]  # JSON
            found.append(other)
    known = {_text(arguments)}
    new = list({text: each for each in found if (text := _text(each)) not in known}.values())
    return new[:_MOST]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _fill(arguments: Arguments, schema: Mapping[str, Any]) -> Arguments:
    """Return the arguments with an item in each empty value."""
    parts: dict[str, Any] = dict(schema.get("properties") or {})
    if isinstance(arguments, dict):
        return {key: _fill_value(value, parts.get(key, {})) for key, value in arguments.items()}
    kinds: list[dict[str, Any]] = [*parts.values(), *({} for _ in arguments)]
    return [_fill_value(value, kind) for value, kind in zip(arguments, kinds, strict=False)]


def _fill_value(value: Any, kind: Mapping[str, Any]) -> Any:
    if value == "":
        return _SAMPLES["string"]
    if value == []:
        return [_sample(kind.get("items") or {})]
    if value == {}:
        inner = kind.get("additionalProperties")
        return {"text": _sample(inner if isinstance(inner, dict) else {})}  # pyright: ignore[reportUnknownArgumentType]  JSON
    return value


def _sample(kind: Mapping[str, Any]) -> Any:
    if kind.get("type") == "array":
        return [_sample(kind.get("items") or {})]
    if kind.get("type") == "object":
        inner = kind.get("additionalProperties")
        return {"text": _sample(inner if isinstance(inner, dict) else {})}  # pyright: ignore[reportUnknownArgumentType]  JSON
    return _SAMPLES.get(str(kind.get("type")), _SAMPLES["string"])


def _apply(arguments: Arguments, change: Callable[[Any, int], Any]) -> Arguments:
    if isinstance(arguments, dict):
        return {key: change(value, 0) for key, value in arguments.items()}
    return [change(value, 0) for value in arguments]


def _shift(value: Any, depth: int) -> Any:
    """Return a neighboring value of the same shape: one more, another last letter."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return _next_letter(value, range(len(value) - 1, -1, -1))
        case list() | dict():
            return _map_items(cast("Any", value), _shift, depth)
        case _:
            return value


def _extend(value: Any, depth: int) -> Any:
    """Return a larger or longer value."""
    match value:
        case bool():
            return not value
        case int() | float():
            return 2 * value + 3
        case str():
            lines = value.rstrip("\n").split("\n")
            return "\n".join([*lines, lines[-1]]) if lines[1:] else f"{value} {value}"
        case [*items] if items:
            return [*items, _shift(items[-1], depth)]
        case dict() if value and depth == 0:
            last = list(cast("dict[str, Any]", value))[-1]
            return {**cast("dict[str, Any]", value), f"{last}x": _shift(cast("Any", value)[last], depth)}
        case _:
            return value


def _shorten(value: Any, depth: int) -> Any:
    """Return a smaller or shorter value."""
    match value:
        case bool():
            return not value
        case int() | float():
            return type(value)(value // 2)
        case str():
            return value[: len(value) // 2]
        case [*items]:
            return items[:-1]
        case dict() if depth == 0:
            return dict(list(cast("dict[str, Any]", value).items())[:-1])
        case _:
            return value


def _turn(value: Any, depth: int) -> Any:
    """Return a reversed value: the other sign, the reverse order, another first letter."""
    match value:
        case bool():
            return not value
        case int() | float():
            return -value - 1
        case str():
            return _next_letter(value, range(len(value)))
        case [*items]:
            return [_map_items(each, _turn, depth) if isinstance(each, dict) else each for each in reversed(items)]
        case dict():
            return _map_items(cast("Any", value), _turn, depth)
        case _:
            return value


def _map_items(value: Any, change: Callable[[Any, int], Any], depth: int) -> Any:
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [change(each, depth + 1) for each in value]  # pyright: ignore[reportUnknownVariableType]  JSON
    return {key: change(each, depth + 1) for key, each in value.items()}


def _next_letter(text: str, order: range) -> str:
    """Return the text with one letter or digit changed."""
    for index in order:
        letter = text[index]
        if letter.isascii() and letter.isalnum():
            other = {"9": "0", "z": "a", "Z": "A"}.get(letter) or chr(ord(letter) + 1)
            return text[:index] + other + text[index + 1 :]
    return text + "x"


_CHANGES = (_shift, _extend, _shorten, _turn)
