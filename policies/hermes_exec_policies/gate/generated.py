"""Generate arguments from the JSON schema of a signature, to try a function with what no case and no test has.

Values keep to the types of the schema. Half of them are shaped as known arguments are; the others are the values at
which functions often change (0, -1, empty, long), and constants of the function's own source with their neighbors,
because a function that treats one value apart usually names it.
"""

from __future__ import annotations

import ast
import json
import math
import random
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_policies.gate.variants import Arguments, make_variants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
