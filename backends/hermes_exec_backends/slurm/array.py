"""Job arrays: one program, many tasks, each on any free node."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from shlex import join, quote
from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import OutcomeUnknown, PlaceUnavailable, UsageError
from hermes_exec.transport.shell.target import run_helper
from hermes_exec_backends.slurm.options import submit_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec.backend import Backend
    from hermes_exec_backends.profiles.slurm import SlurmProfile

_POLL_S = 2.0
_TASK = """\
#!/bin/sh
at=%(folder)s/$SLURM_ARRAY_JOB_ID.$SLURM_ARRAY_TASK_ID
%(words)s >"$at.out" 2>"$at.err"
code=$?
echo "$code" >"$at.part" && mv "$at.part" "$at.code"
exit "$code"
"""
_WRITABLE = '[ -d "$1" ] && [ -w "$1" ]'
_CODES = 'cd "$1" || exit; for file in "$2".*.code; do [ -e "$file" ] && echo "hx $file $(cat "$file")"; done; true'


@dataclass(frozen=True, slots=True)
class Task:
    """One task of an array, after its end."""

    index: int
    """The task's number, ``SLURM_ARRAY_TASK_ID``."""
    exit_code: int | None
    """128 or more: ended by a signal. None if it was cancelled before it began, or its node was lost."""
    stdout_path: str
    """The path, in the outer target, of the standard output."""
    stderr_path: str
    """The path, in the outer target, of the standard error."""


async def run_array(
    profile: SlurmProfile,
    argv: Sequence[str],
    indices: Iterable[int],
    *,
    folder: str,
    outer: Backend | None = None,
) -> list[Task]:
    """Run ``argv`` once for each index, and wait for all.

    Args:
        profile: the resources to request for each task.
        argv: the program and its arguments.
        indices: the numbers of the tasks.
        folder: a directory that the nodes and the outer target share; it must exist.
        outer: an open target with Slurm's commands; this machine if omitted.

    Raises:
        UsageError: ``folder`` is not a directory that can be written; nothing ran.
        PlaceUnavailable: Slurm refuses the array; nothing ran.
        OutcomeUnknown: the outer target was lost; the array continues.
        asyncio.CancelledError: the task was cancelled; the array is cancelled too.
    """
    if outer is None:
        from hermes_exec.config import registry

        outer = registry.find_backend_class("local")()
    numbers = sorted(set(indices))
    if not numbers or numbers[0] < 0:
        raise UsageError("an array needs at least one index, and none below 0")
    await _check_folder(outer, folder)
    job = await _submit(outer, profile, argv, numbers, folder)
    try:
        await _until_over(outer, job)
    except asyncio.CancelledError:
        await asyncio.shield(run_helper(outer, ["scancel", "--quiet", job]))
        raise
    codes = await _codes(outer, job, folder)
    return [
        Task(number, codes.get(number), f"{folder}/{job}.{number}.out", f"{folder}/{job}.{number}.err")
        for number in numbers
    ]


async def _check_folder(outer: Backend, folder: str) -> None:
    """Without the folder each task fails before its program starts, and has no place for the reason."""
    reply = await run_helper(outer, ["/bin/sh", "-c", _WRITABLE, "sh", folder])
    if reply.exit.code == 1:
        what = f"slurm: {to_printable(folder)} is not a folder at {outer.target} in which an array can write"
        raise UsageError(what, remedy=f"create it where all nodes see it: mkdir -p {quote(folder)}")
    if reply.exit.code != 0:
        raise PlaceUnavailable(f"slurm: {to_printable(folder)} at {outer.target}: {reply.failure}")


async def _submit(outer: Backend, profile: SlurmProfile, argv: Sequence[str], numbers: list[int], folder: str) -> str:
    script = _TASK % {"folder": quote(folder), "words": join(argv)}
    wanted = f"--array={','.join(map(str, numbers))}"
    reply = await run_helper(outer, ["sbatch", "--parsable", *submit_options(profile), wanted], script.encode())
    job = reply.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2].partition(";")[0]
    if reply.exit.code != 0 or not job.isdigit():
        raise PlaceUnavailable(f"slurm: no array at {outer.target}: {reply.failure}")
    return job


async def _until_over(outer: Backend, job: str) -> None:
    while True:
        reply = await run_helper(outer, ["squeue", "--noheader", f"--jobs={job}", "--format=%i"])
        if not reply.stdout.strip() and (reply.exit.code == 0 or b"Invalid job id" in reply.stderr):
            return
        if reply.exit.code != 0:
            raise OutcomeUnknown(f"slurm: the array {job}: {reply.failure}", remedy=f"squeue --jobs={job}")
        await asyncio.sleep(_POLL_S)


async def _codes(outer: Backend, job: str, folder: str) -> dict[int, int]:
    reply = await run_helper(outer, ["/bin/sh", "-c", _CODES, "sh", folder, job])
    found: dict[int, int] = {}
    for line in reply.stdout.decode("utf-8", "replace").splitlines():
        match line.split():
            case ["hx", name, code] if name.split(".")[1].isdigit() and code.isdigit():
                found[int(name.split(".")[1])] = int(code)
            case _:
                pass
    return found
