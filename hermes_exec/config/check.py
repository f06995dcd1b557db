"""Validate a table of a configuration file as a model, and report each problem as one plain line.

A line never repeats a value, only keys and what was expected: the user may have put a secret under the wrong key.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from pydantic import BaseModel, ValidationError

from hermes_exec.config import registry
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from hermes_exec.config.profile import Profile

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "is_instance_of": "a path",
    "path_type": "a path",
}


def validate_table(model: type[Model], table: Mapping[str, object], where: str, folder: Path | None = None) -> Model:
    """Build ``model`` from ``table``; relative paths of this machine start at ``folder``.

    Raises:
        ConfigError: one line for each problem, each starting with ``where``.
    """
    try:
        return model.model_validate(dict(table), context={"folder": folder})
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=True, include_context=True)
        raise ConfigError("\n".join(f"{where}: {_problem(each, model)}" for each in details)) from None


def profile_from_table(table: object, where: str, folder: Path | None = None) -> Profile:
    """Build the profile that ``table`` describes, with the model of its ``type``.

    Raises:
        ConfigError: a problem of the table or an unknown type, each line starting with ``where``.
        Unsupported: this version has no such kind of target.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: should be a table, not {_kind(table)}")
    fields = cast("Mapping[str, object]", table)
    kind = fields.get("type")
    if kind is None:
        raise ConfigError(f"{where}: 'type' is missing", remedy='type = "local", or docker, ssh, …')
    if not isinstance(kind, str):
        raise ConfigError(f"{where}: 'type' should be text, not {_kind(kind)}")
    try:
        model = registry.find_profile_model(kind)
    except ConfigError as error:
        raise prefix_error(where, error) from error
    return validate_table(model, fields, where, folder)


def prefix_error(where: str, error: ConfigError) -> ConfigError:
    """Return the same error with ``where`` at the beginning of each line."""
    return ConfigError("\n".join(f"{where}: {line}" for line in error.what.splitlines()), remedy=error.remedy)


def nearest_name(word: str, known: Iterable[str]) -> str:
    """Return the known name that is most like ``word``; empty when no name is known."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.0)), "")


def describe_unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown key, with the nearest known one, or all if none is near."""
    names = sorted(known)
    if close := difflib.get_close_matches(key, names, n=1):
        return f"unknown key {key!r}; the nearest known one is {close[0]!r}"
    return f"unknown key {key!r}; known ones are {', '.join(names)}"


def _problem(error: ErrorDetails, model: type[BaseModel]) -> str:
    place = _place(error["loc"])
    kind = error["type"]
    if kind == "extra_forbidden":
        *above, key = error["loc"]
        known = _fields(model, above)
        told = describe_unknown_key(str(key), known) if known else f"unknown key {place!r}"
        return f"{_place(tuple(above))!r}: {told}" if above and known else told
    if kind == "missing":
        return f"{place!r} is missing"
    if kind == "value_error":
        said = str(error.get("ctx", {}).get("error", "is wrong"))
        return (
            f"{place!r} {said}" if place and said.startswith(("should", "holds", "names")) else _join_place(place, said)
        )
    expected = _EXPECTED.get(kind)
    if expected:
        return f"{place!r} should be {expected}, not {_kind(error['input'])}"
    return f"{place!r} {error['msg'].removeprefix('Input ')}"


def _fields(model: type[BaseModel], above: Sequence[int | str]) -> Iterable[str]:
    """Return the keys of the table at a location in ``model``; empty where the location is in no model."""
    for key in above:
        field = model.model_fields.get(str(key))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return ()
        model = field.annotation
    return model.model_fields


def _join_place(place: str, said: str) -> str:
    return f"{place!r}: {said}" if place else said


def _place(location: tuple[int | str, ...]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".")


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a table"
        case _:
            return f"a {type(value).__name__}"
