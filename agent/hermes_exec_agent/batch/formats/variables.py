"""Variables of the person's environment in the settings of a task: ``${NAME}`` and ``${NAME:-DEFAULT}``.

A task comes from anybody, so it reads only the variables that the person passes. The folder of a run has the templates,
never the values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def list_names(env: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield the variables that values name, each with its default."""
    for value in env.values():
        for found in _TEMPLATE.finditer(value):
            yield found[1], found[2]


def fill(env: Mapping[str, str], passed: Collection[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values with the variables that are passed; others have their defaults.

    Raises:
        UsageError: a variable without a default is not passed, or not set.
    """

    def replace(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if name in passed and name in environ:
            return environ[name]
        if default is None:
            why = "is not set" if name in passed else "is not passed"
            raise UsageError(f"the variable {name} of the task {why}", remedy=f"export {name}=…, and --pass-env {name}")
        return str(default)

    return {key: _TEMPLATE.sub(replace, value) for key, value in env.items()}
