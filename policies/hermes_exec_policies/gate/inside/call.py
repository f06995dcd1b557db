"""Call one function of a skill, and give what it returned as the one JSON document on standard output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import ModuleType
    from typing import Any


def call(folder: str, entry: str, function: str, packages: str) -> None:
    """Call it with the arguments on standard input; what it prints goes to the log."""
    own = os.dup(1)  # not inherited by what the skill starts
    os.dup2(2, 1)
    request = json.loads(sys.stdin.buffer.read())
    script = Path(folder, entry)
    sys.path[:0] = [str(script.parent), *([packages] if packages else [])]
    sys.argv = [str(script)]
    code = 1
    try:
        answer = {"result": called(getattr(load(script), function), request)}
        text = json.dumps(answer, allow_nan=False)
        code = 0
    except BaseException as error:  # noqa: BLE001  also of SystemExit something is told
        import traceback

        traceback.print_exc()
        text = json.dumps({"error": described(error)})
    sys.stdout.flush()
    data = text.encode()
    while data:
        data = data[os.write(own, data) :]
    os.close(own)
    sys.exit(code)


def load(script: Path) -> ModuleType:
    """Import the script under its own name."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(script.stem, script)
    if spec is None or spec.loader is None:
        raise ImportError(script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    spec.loader.exec_module(module)
    return module


def called(function: Any, request: Any) -> Any:
    """What the function gives, waited for where that is needed."""
    given = function(*request) if isinstance(request, list) else function(**request)
    if hasattr(given, "__await__"):
        import asyncio

        return asyncio.run(awaited(given))
    return given


async def awaited(given: Awaitable[Any]) -> Any:
    """What it gives in the end."""
    return await given


def described(error: BaseException) -> dict[str, str]:
    """An error in short plain texts."""
    return {
        "type": type(error).__name__[:100],
        "message": str(error)[:500],
        "missing": (error.name or "")[:100] if isinstance(error, ModuleNotFoundError) else "",
    }


call(*sys.argv[1:5])
