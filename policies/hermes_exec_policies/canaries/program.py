"""The suite of attempts as one source text, which any Python in a sandbox runs with ``-c``."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODULES = ("kit", "system", "controls", "files", "kernel", "network", "processes", "limits", "start")
"""In import order; the last module is started."""
_PACKAGE = "hermes_exec_canaries"
_LOADER = """\
import sys
package = sys.modules[{package!r}] = type(sys)({package!r})
package.__path__ = []
for name, text in {sources!r}:
    full = {package!r} + "." + name
    module = sys.modules[full] = type(sys)(full)
    module.__package__ = {package!r}
    setattr(package, name, module)
    exec(compile(text, full, "exec"), module.__dict__)
module.start()
"""


@cache
def suite_text() -> str:
    """The source text of the suite."""
    folder = files("hermes_exec_policies") / "canaries" / "inside"
    sources = tuple((name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES)
    return _LOADER.format(package=_PACKAGE, sources=sources)


def suite_argv(python: str, configuration: Mapping[str, object]) -> Sequence[str]:
    """The argv that starts the suite, isolated from its working folder and its environment."""
    return [python, "-I", "-S", "-B", "-c", suite_text(), json.dumps(configuration)]
