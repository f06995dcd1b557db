"""Arguments that no case and no test has, with which a function is called.

*Variants* of known arguments show whether the result depends on them. *Generated* arguments follow the JSON schema of
the signature: half of them are shaped as known arguments are; the others are the values at which functions often
change (0, -1, empty, long), and constants of the function's own source with their neighbors, because a function that
treats one value apart usually names it.
"""

from __future__ import annotations

import ast
import base64
import json
import math
import random
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Arguments = dict[str, Any] | list[Any]
_MOST = 10
_DEEPEST_VARIANT = 6
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
    if depth > _DEEPEST_VARIANT:
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


_INTEGERS = (0, 1, -1, 2, 3, 7, 10, 100, 255, 1000, 65_536, -40)
_NUMBERS = (0.0, 1.0, -1.0, 0.5, 2.5, 1e-3, 99.99, 1e6)
_TEXTS = (
    "",
    "a",
    "text",
    "Two words",
    "x" * 40,
    "Ünï çödé",
    "a,b;c",
    "line one\nline two",
    " padded ",
    "2024-02-29",
    "12",
)
_LONGEST_TEXT = 200
_MOST_ITEMS = 5
_DEEPEST = 3
_BASES = 3
"""The known arguments whose shape is used."""
_LIKELY = 0.5
"""The fraction of calls that have an optional argument."""
_USUAL = 0.7
"""The fraction of numbers that are among those at which functions often change."""
_EXOTIC = 0.3
"""The fraction of values that are constants of the source, where it has any of the type."""


def generate_arguments(
    schema: Mapping[str, Any], known: Sequence[Arguments], source: str, count: int, seed: int
) -> list[Arguments]:
    """Return up to ``count`` different arguments by name that no known ones are equal to.

    Args:
        schema: of the arguments, an object.
        known: arguments that cases and tests have, by name.
        source: the text of the function's module.
        count: the most to return.
        seed: of the choice; equal seeds make equal arguments.
    """
    chance = random.Random(seed)  # noqa: S311  values to try, no secrets
    constants = find_constants(source)
    properties: dict[str, Any] = dict(schema.get("properties") or {})
    required = set(schema.get("required") or properties)
    shaped = [each for base in known[:_BASES] for each in make_variants(base, schema)]
    chance.shuffle(shaped)
    named = _place_constants(known, constants)
    chance.shuffle(named)
    named += [dict(zip(properties, values, strict=True)) for values in _find_groups(source, len(properties))]
    found: dict[str, Arguments] = {}
    left_out = {_text(each) for each in known}
    for number in range(count * 8):
        if len(found) == count:
            break
        if number % 2 and named:
            made: Arguments = named.pop()
        elif number % 4 and shaped:
            made = shaped.pop()
        else:
            made = {
                name: _value(kind, constants, chance)
                for name, kind in properties.items()
                if name in required or chance.random() < _LIKELY
            }
        if (text := _text(made)) not in left_out:
            found.setdefault(text, made)
    return list(found.values())


_ENCODED = 24
"""The fewest characters of base64 that are taken for encoded bytes."""


def is_encoded(value: Any) -> bool:
    """Return whether a value is base64 of bytes that are not text: a change of it is an error, or changes no byte."""
    try:
        is_long = isinstance(value, str) and len(value) >= _ENCODED  # many words are base64 of something
        data = base64.b64decode(value, validate=True) if is_long else b""
        data.decode()
    except UnicodeDecodeError:
        return True
    except ValueError:
        return False
    return b"\0" in data


def has_encoded(arguments: dict[str, Any]) -> bool:
    """Return whether one of a call's arguments is encoded bytes."""
    return any(map(is_encoded, arguments.values()))


def _place_constants(known: Sequence[Arguments], constants: Sequence[Any]) -> list[Arguments]:
    """Return the first known arguments, each time with a constant of the source in place of one value."""
    base = known[0] if known else {}
    if not isinstance(base, dict):
        return []
    return [
        {**base, name: constant}
        for name, value in base.items()
        for constant in constants
        if type(constant) is type(value)
    ]


def _find_groups(source: str, size: int) -> list[list[Any]]:
    """Return the groups of constants of this size in a module, such as the keys of a table of answers."""
    found: list[list[Any]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if len(parts) == size > 1:
                if all(isinstance(each, ast.Constant) for each in parts):
                    found.append([each.value for each in parts if isinstance(each, ast.Constant)])
            case _:
                pass
    return [each for each in found if all(isinstance(part, str | int | float | None) for part in each)]


def find_constants(source: str) -> list[Any]:
    """Return the numbers and short texts of a module, with the neighbors of whole numbers, in order."""
    found: list[Any] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=bool() | None):
                pass
            case ast.Constant(value=int() as value) if abs(value) < 1 << 62:
                found += [value, value + 1, value - 1]
            case ast.Constant(value=float() as value) if math.isfinite(value):
                found.append(value)
            case ast.Constant(value=str() as text) if len(text) <= _LONGEST_TEXT:
                found.append(text)
            case _:
                pass
    return list({(type(each), each): each for each in found}.values())  # pyright: ignore[reportUnknownArgumentType]  JSON


def _value(kind: Mapping[str, Any], constants: Sequence[Any], chance: random.Random, depth: int = 0) -> Any:
    """Return a value of a schema."""
    if choices := kind.get("enum"):
        return chance.choice(list(choices))
    if alternatives := kind.get("anyOf"):
        return _value(chance.choice(list(alternatives)), constants, chance, depth)
    match kind.get("type"):
        case "boolean":
            return chance.choice((False, True))
        case "null":
            return None
        case "integer":
            return (
                _choose(_INTEGERS, int, constants, chance) if chance.random() < _USUAL else chance.randint(-500, 5000)
            )
        case "number":
            return (
                _choose(_NUMBERS, float, constants, chance) if chance.random() < _USUAL else chance.uniform(-1e3, 1e3)
            )
        case "string":
            return _choose(_TEXTS, str, constants, chance)
        case "array":
            most = _MOST_ITEMS if depth < _DEEPEST else 0
            return [
                _value(kind.get("items") or {}, constants, chance, depth + 1) for _ in range(chance.randint(0, most))
            ]
        case "object":
            inner: Any = kind.get("additionalProperties")
            inner = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
            names = chance.sample(("a", "name", "x", "total"), chance.randint(0, 3 if depth < _DEEPEST else 0))
            return {name: _value(inner, constants, chance, depth + 1) for name in names}
        case _:
            kinds = ("string", "integer", "number", "boolean")
            return _value({"type": chance.choice(kinds)}, constants, chance, depth)


def _choose(usual: Sequence[Any], kind: type, constants: Sequence[Any], chance: random.Random) -> Any:
    own = [each for each in constants if type(each) is kind]
    return chance.choice(own if own and chance.random() < _EXOTIC else usual)
