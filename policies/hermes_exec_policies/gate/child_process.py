"""Parse hostile input in a child process, under limits of time and memory, as the input can hang or crash a parser.

The child runs only code of ours and of libraries; it never imports or executes code of a skill.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

from hermes_exec.errors import HermesError

_PROGRAM = """
import json, resource, sys
request = json.load(sys.stdin.buffer)
sys.path[:] = request["path"]
sys.setrecursionlimit(2000)
for name, value in (("RLIMIT_CPU", request["cpu_s"]), ("RLIMIT_AS", request["memory"]), ("RLIMIT_CORE", 0)):
    resource.setrlimit(getattr(resource, name), (value, value))
from importlib import import_module
answer = import_module(request["module"]).answer(request["question"])
sys.stdout.buffer.write(json.dumps(answer).encode("ascii"))
"""
_PASSED = ("HOME", "XDG_CACHE_HOME")
"""Variables by which libraries find the folder of their caches."""
_MEMORY = 768 << 20
_WALL_S = 60.0
_ANSWER = 8 << 20


class Unanswered(HermesError):
    """A child process ended without an answer, so the input was not judged."""


async def ask(module: str, question: dict[str, Any], *, cpu_s: int) -> Any:
    """Return ``answer(question)`` of ``module``, run in a child process with ``cpu_s`` seconds of CPU time.

    Raises:
        Unanswered: it crashed, or hit a limit.
    """
    request = {
        "path": [entry for entry in sys.path if entry.startswith("/")],
        "cpu_s": cpu_s,
        "memory": _MEMORY,
        "module": module,
        "question": question,
    }
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", "-c", _PROGRAM,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", **passed}, cwd="/",
    )  # fmt: skip
    try:
        async with asyncio.timeout(_WALL_S):
            out, err = await process.communicate(json.dumps(request).encode("ascii"))
    except TimeoutError:
        raise Unanswered(f"{module}: no answer within {_WALL_S:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    if process.returncode != 0 or len(out) > _ANSWER:
        last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        raise Unanswered(f"{module}: {last[0][:200]}")
    return json.loads(out)
