"""Tables of ``top`` that other packages add, with an entry point of the group ``hermes_exec.views``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from hermes_exec.cli.console import note
from hermes_exec.config.plugins import find_plugins, has_plugins, load_entry_point, load_value, own_values
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GROUP = "hermes_exec.views"
"""Each entry point names a tuple of `View`."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: a key that stays the same while its cells change, and the cells."""

    key: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A table of ``top``."""

    title: str
    heads: tuple[str, ...]
    """The titles of its columns."""
    read: Callable[[], Sequence[Row]]
    """Returns the rows; called in a thread, again and again. A `HermesError` is shown below the table."""
    drop: tuple[str, ...] = ()
    """The columns that a narrow terminal does not show, in this order."""
    show: Callable[[str], Sequence[str]] | None = None
    """Returns the lines that the key ``l`` shows of a row; called in a thread."""
    attach: Callable[[str], Sequence[str]] | None = None
    """Returns the arguments of ``hermes-exec`` that the key ``a`` starts for a row."""


def load_views() -> list[View]:
    """Return the registered views; a note says which one cannot be loaded."""
    own = own_values(GROUP)
    loaders: list[tuple[str, Callable[[], object]]] = [(value, partial(load_value, value)) for value in own.values()]
    try:
        plugins = find_plugins(GROUP, is_reserved=own.__contains__) if has_plugins(GROUP) else {}
    except HermesError as error:
        note(str(error))
        plugins = {}
    loaders += [(point.value, partial(load_entry_point, point)) for point in plugins.values()]
    found: list[View] = []
    for value, load in loaders:
        try:
            loaded = load()
        except (HermesError, ImportError, AttributeError) as error:
            note(f"{value} cannot be loaded: {error}")
            continue
        views = cast("tuple[object, ...]", loaded) if isinstance(loaded, tuple) else ()
        found += [each for each in views if isinstance(each, View)]
    return found
