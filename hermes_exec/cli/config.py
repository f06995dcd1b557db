"""``config``: show the configuration files, and the settings that apply with their sources."""

import difflib
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hermes_exec.cli.completion.values import complete_keys
from hermes_exec.cli.console import note
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from hermes_exec.config.effective import EffectiveSetting

_SHOWN = 100
"""Characters of a value in the table; --json has all of it."""


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(config)


def config(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]",
            help="Show this key, or the keys below it, such as: log.",
            autocompletion=complete_keys,
        ),
    ] = None,
    *,
    changed: Annotated[bool, typer.Option("--changed", help="Leave out settings that have their defaults.")] = False,
    json: Json = False,
) -> int:
    """Show the configuration files, and the settings that apply here with the source of each.

    Secrets are not shown. hermes-exec profile show NAME prints all values of a profile, profile init writes a file to
    begin with, and docs/configuration.md describes every key.
    """
    from hermes_exec.config.effective import DEFAULT, find_effective

    found = find_effective()
    for warning in found.warnings:
        note(warning)
    settings = [each for each in _select(found.settings, key) if not (changed and each.origin == DEFAULT)]
    if json:
        files = [{**asdict(each), "path": str(each.path)} for each in found.files]
        show_json({"files": files, "settings": [asdict(each) for each in settings]})
        return 0
    if key is None:
        show_table(("FILE", "OF", "STATE"), [[str(each.path), each.role, each.state] for each in found.files])
        print()
    rows = [[each.key, _format(each.value), each.origin] for each in settings]
    show_table(("KEY", "VALUE", "FROM"), rows, drop=("FROM",))
    return 0


def _select(settings: "list[EffectiveSetting]", key: str | None) -> "list[EffectiveSetting]":
    if key is None:
        return settings
    chosen = [each for each in settings if each.key == key or each.key.startswith(f"{key.rstrip('.')}.")]
    if not chosen:
        names = [each.key for each in settings]
        close = difflib.get_close_matches(key, [*names, *{name.partition(".")[0] for name in names}], n=1)
        raise UsageError(f"there is no setting {key!r}", remedy=close[0] if close else "hermes-exec config")
    return chosen


def _format(value: object) -> str:
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, list):
        text = ", ".join(map(_format, cast("list[object]", value)))
    elif isinstance(value, dict):
        text = ", ".join(f"{name} = {_format(each)}" for name, each in cast("dict[str, object]", value).items())
    else:
        text = "" if value is None else str(value)
    text = " ".join(text.split()) or "-"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
