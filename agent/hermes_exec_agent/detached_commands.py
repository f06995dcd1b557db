"""Start commands of this program in processes of their own, which no request, exit or Ctrl-C waits for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Options(TypedDict):
    stdin: int
    stdout: int
    stderr: int
    start_new_session: bool
    cwd: str


_APART = _Options(
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"
)


def start_command(*words: str) -> None:
    """Start ``hermes-exec WORDS``. It is not waited for, and the caller does not receive its errors."""
    subprocess.Popen(_list_arguments(words), **_APART)


async def run_command(*words: str) -> None:
    """Start ``hermes-exec WORDS``, and wait for its end; if this is cancelled, the command continues."""
    process = await asyncio.create_subprocess_exec(*_list_arguments(words), **_APART)
    await process.wait()


def _list_arguments(words: Sequence[str]) -> Sequence[str]:
    # -P: no module of the current folder is imported.
    return (sys.executable, "-P", "-m", "hermes_exec", *words)
