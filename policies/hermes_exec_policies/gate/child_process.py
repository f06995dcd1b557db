"""Call functions of ours on hostile input in a child process, under limits, as input can hang, fill or crash a parser.

The child never imports or executes code of a skill. Its answers are hostile, too: they are bounded, and converted to
the types that the functions declare.
"""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import json
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, get_type_hints

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable

    from pydantic import TypeAdapter

P = ParamSpec("P")
T = TypeVar("T")

_PROGRAM = """
import json, math, os, resource, sys, time, traceback
from dataclasses import fields, is_dataclass
from importlib import import_module

def plain(value):
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not plain")

answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
start = json.loads(sys.stdin.buffer.readline())
sys.path[:] = start["path"]
sys.setrecursionlimit(2000)
for name, value in (("RLIMIT_AS", start["memory"]), ("RLIMIT_CORE", 0)):
    resource.setrlimit(getattr(resource, name), (value, value))
most = resource.getrlimit(resource.RLIMIT_CPU)[1]
for line in sys.stdin.buffer:
    request = json.loads(line)
    cpu = math.ceil(time.process_time()) + request["cpu_s"]
    resource.setrlimit(resource.RLIMIT_CPU, (cpu if most < 0 else min(cpu, most), most))
    try:
        function = getattr(import_module(request["module"]), request["function"])
        answer = json.dumps({"answer": function(*request["arguments"], **request["named"])}, default=plain)
    except BaseException as error:
        answer = json.dumps({"error": traceback.format_exception_only(error)[-1].strip()[:200]})
    answers.write(answer.encode("ascii") + b"\\n")
    answers.flush()
"""
_PASSED = ("HOME", "XDG_CACHE_HOME")
"""Variables by which libraries find the folder of their caches."""
_MEMORY = 768 << 20
_WALL_S = 60.0
_EXIT_S = 5.0
_ANSWER = 64 << 20
"""Bytes of one answer: the mutants of a script are thirty times its text."""


class Unanswered(HermesError):
    """A child process gave no valid answer, so the input was not judged."""


class ChildProcess:
    """A child process that is started on the first call and answers one call at a time; leaving the context ends it."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def call(self, cpu_s: int, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return what a function of a module returns in the child process, within ``cpu_s`` seconds of CPU time.

        The arguments are plain values, and the result has the type that the function declares.

        Raises:
            Unanswered: the child crashed, hit a limit, or gave an invalid answer. After a crash the next call starts
                another one.
        """
        module = function.__module__
        request = {
            "cpu_s": cpu_s, "module": module, "function": function.__name__, "arguments": arguments, "named": named,
        }  # fmt: skip
        line = json.dumps(request, default=list).encode("ascii") + b"\n"
        async with self._turn:
            told = await self._exchange(module, line, max(_WALL_S, 2.0 * cpu_s))
        try:
            answer = json.loads(told)
            if "error" in answer:
                raise Unanswered(f"{module}: {str(answer['error'])[:200]}")
            result: T = _adapter(function).validate_python(answer["answer"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Unanswered(f"{module}: an invalid answer") from None
        return result

    async def _exchange(self, module: str, request: bytes, wall_s: float) -> bytes:
        """Send a request and return the line of its answer; without one the child is ended."""
        process = self._process = self._process or await _start()
        if process.stdin is None or process.stdout is None:
            raise AssertionError("a child process without pipes")
        told, why = b"", "given up"
        try:
            async with asyncio.timeout(wall_s):
                with contextlib.suppress(ConnectionError):
                    process.stdin.write(request)
                    await process.stdin.drain()
                told = await process.stdout.readline()
            why = ""
        except TimeoutError:
            why = f"no answer within {wall_s:g} s"
        except ValueError:
            why = f"an answer of more than {_ANSWER >> 20} MiB"
        finally:
            code = 0 if told.endswith(b"\n") else await self._end(exits=not why)
        if not told.endswith(b"\n"):
            raise Unanswered(f"{module}: {why or f'exit status {code}'}")
        return told

    async def _end(self, *, exits: bool = False) -> int:
        """End the child, and return its exit status; one that ``exits`` by itself has time for it."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if exits:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), _EXIT_S)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await asyncio.shield(process.wait())


async def _start() -> Process:
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", "-c", _PROGRAM, limit=_ANSWER,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", **passed}, cwd="/",
    )  # fmt: skip
    if process.stdin is not None:
        start = {"path": [entry for entry in sys.path if entry.startswith("/")], "memory": _MEMORY}
        process.stdin.write(json.dumps(start).encode("ascii") + b"\n")
    return process


@cache
def _adapter(function: Callable[..., Any]) -> TypeAdapter[Any]:
    """Return the converter to the result's type; names of types that are imported for type checkers are known, too."""
    from pydantic import TypeAdapter

    return TypeAdapter(get_type_hints(function, localns=vars(collections.abc))["return"])
