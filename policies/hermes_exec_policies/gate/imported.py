"""Which modules of others a skill imports, read from its text."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def imported(texts: Mapping[str, str]) -> list[str]:
    """The full names of modules that are imported in these files, by path, and that are none of these files."""
    own = {part.removesuffix(".py") for path in texts for part in path.split("/")}
    found: set[str] = set()
    for text in texts.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
    return sorted(name for name in found if name.partition(".")[0] not in own)
