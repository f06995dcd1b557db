"""Load a policy by name or from a file, with the policies that it extends and with overrides."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hermes_exec.config.check import nearest_name, validate_table
from hermes_exec.config.paths import read_regular, to_printable, user_file
from hermes_exec.errors import ConfigError
from hermes_exec_policies.model import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable

Table = Mapping[str, object]

_LONGEST_CHAIN = 8
_SUFFIX = ".toml"


@cache
def list_shipped_policies() -> tuple[str, ...]:
    """The names of the shipped policies, sorted."""
    folder = files("hermes_exec_policies") / "shipped"
    return tuple(sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX)))


def user_folder() -> Path:
    """The folder of the user's own policies: ``policies/`` next to the configuration file."""
    return user_file(os.environ).parent / "policies"


def list_policies() -> list[str]:
    """The names of all shipped and own policies, sorted."""
    folder = user_folder()
    own = [path.stem for path in folder.glob(f"*{_SUFFIX}")] if folder.is_dir() else []
    return sorted({*list_shipped_policies(), *own})


def load_policy(name: str, overrides: Table | None = None) -> Policy:
    """Load the policy called ``name``, or a file if ``name`` has a slash or ends with ``.toml``.

    ``overrides`` is a table of the same shape; its values replace those of the policy.

    Raises:
        ConfigError: there is no such policy, or it is invalid; a line for each problem.
    """
    if not overrides and name in list_shipped_policies():
        return _load_shipped(name)
    table, where = _find(name, ())
    return _policy(table, name, where, overrides)


@cache
def _load_shipped(name: str) -> Policy:
    """Load a shipped policy. It extends only shipped ones, so the user's files do not affect it."""
    table, where = _find(name, ())
    return _policy(table, name, where, None)


def parse_policy(text: str, name: str, overrides: Table | None = None) -> Policy:
    """Parse ``text`` as the policy file called ``name``.

    Raises:
        ConfigError: the policy is invalid; a line for each problem.
    """
    table = _extend(_toml(text, name), name, None, (name,))
    return _policy(table, name, f"policy {name!r}", overrides)


def override_policy(policy: Policy, overrides: Table) -> Policy:
    """Return ``policy`` with other values.

    Raises:
        ConfigError: ``overrides`` is invalid; a line for each problem.
    """
    table = policy.model_dump(mode="python", exclude={"name"})
    return _policy(_spell_limits(table), policy.name, f"policy {policy.name!r}", overrides)


def _policy(table: Table, name: str, where: str, overrides: Table | None) -> Policy:
    if overrides:
        table, where = merge_tables(table, overrides), f"{where} with overrides"
    if "name" in table:
        raise ConfigError(f"{where}: 'name' cannot be set; it is the name of the file")
    return validate_table(Policy, {**table, "name": Path(name).name.removesuffix(_SUFFIX)}, where)


def merge_tables(below: Table, above: Table) -> dict[str, object]:
    """``below`` with the values of ``above``: tables are merged, other values are replaced."""
    joined = dict(below)
    for key, value in above.items():
        base = joined.get(key)
        both = isinstance(base, Mapping) and isinstance(value, Mapping)
        joined[key] = merge_tables(cast("Table", base), cast("Table", value)) if both else value
    return joined


def _find(name: str, via: tuple[str, ...], folder: Path | None = None) -> tuple[Table, str]:
    if name in via:
        raise ConfigError(f"the policies {' -> '.join([*via, name])} extend each other")
    if len(via) >= _LONGEST_CHAIN:
        raise ConfigError(f"at most {_LONGEST_CHAIN} policies can extend each other: {' -> '.join(via)}")
    if name in list_shipped_policies():
        text, home, where = _read_shipped(name), None, f"policy {name!r}"
    else:
        path = _path_of(name, folder, named=not via)
        text, home, where = _text(path), path.parent, to_printable(path)
    return _extend(_toml(text, where), where, home, (*via, name)), where


def _path_of(name: str, folder: Path | None, *, named: bool) -> Path:
    if named and ("/" in name or name.endswith(_SUFFIX)):
        return Path(name).expanduser()
    for place in filter(None, (folder, user_folder())):
        path = place / f"{name}{_SUFFIX}"
        if "/" not in name and name not in {"", ".", ".."} and path.is_file():
            return path
    known = list_policies()
    raise ConfigError(
        f"no policy is called {name!r}; the nearest known one is {nearest_name(name, known)!r}", remedy=", ".join(known)
    )


def _extend(table: Table, where: str, folder: Path | None, via: tuple[str, ...]) -> Table:
    base = table.get("extends")
    if base is None:
        return table
    if not isinstance(base, str):
        raise ConfigError(f"{where}: 'extends' should be the name of a policy")
    below, _ = _find(base, via, folder)
    return merge_tables(below, {key: value for key, value in table.items() if key != "extends"})


def _read_shipped(name: str) -> str:
    return (files("hermes_exec_policies") / "shipped" / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{to_printable(path)}: {error}") from None


def _toml(text: str, where: str) -> Table:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"{where}: {problem}") from None


def _spell_limits(table: Table) -> dict[str, object]:
    """The dump of a model, with ``unlimited`` in place of None."""
    limits = cast("Table", table["limits"])
    return {**table, "limits": {key: "unlimited" if value is None else value for key, value in limits.items()}}


def diff_policies(one: Policy, other: Policy) -> Iterable[tuple[str, object, object]]:
    """The keys with different values, with both values, in the order of the model."""
    left, right = (flatten(policy.model_dump(mode="json", exclude={"name", "summary"})) for policy in (one, other))
    for key in dict.fromkeys((*left, *right)):
        if left.get(key) != right.get(key):
            yield key, left.get(key), right.get(key)


def flatten(table: Table, above: str = "") -> dict[str, object]:
    """Flatten nested tables into one, with dotted names."""
    found: dict[str, object] = {}
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            found |= flatten(cast("Table", value), f"{name}.")
        else:
            found[name] = value
    return found
