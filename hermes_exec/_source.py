"""The source and the compiled code of modules that are sent to targets.

Hooks of the import system, such as the one by which pytest rewrites assertions, do not apply to them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import PathFinder, SourceFileLoader


def find_source_loader(name: str) -> SourceFileLoader:
    """Return the loader of a module's source file. Its package is imported.

    Raises:
        ImportError: there is no such module, or it is not a source file.
    """
    package = import_module(name.rpartition(".")[0])
    spec = PathFinder.find_spec(name, package.__path__)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise ImportError(f"the module {name} is not a source file")
    return spec.loader
