"""Run one command in several terminals at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack, cast

from hermes_exec._arguments import check_call
from hermes_exec._async import gather_or_cancel
from hermes_exec.errors import GatherFailed, HermesError, UsageError
from hermes_exec.terminal.encoding import describe_kind, encode_command, validate_count
from hermes_exec.terminal.requests import choose_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.result import Result
    from hermes_exec.terminal.encoding import Argument
    from hermes_exec.terminal.requests import RunOptions
    from hermes_exec.terminal.terminal import Terminal


def _list_terminals(terminals: Any) -> list[Terminal]:
    if not isinstance(terminals, Iterable):
        raise UsageError(f"terminals: {describe_kind(terminals)} is not a list of terminals", remedy="[terminal]")
    listed = list(cast("Iterable[Terminal]", terminals))
    for each in listed:
        if not hasattr(each, "run"):
            raise UsageError(f"terminals: {describe_kind(each)} is not a terminal", remedy="terminals that are open")
    return listed


@check_call
async def gather(
    terminals: Iterable[Terminal],
    command: Argument | Sequence[Argument],
    *,
    max_parallel: int | None = None,
    **options: Unpack[RunOptions],
) -> list[Result]:
    """Run a command in each terminal concurrently, and return the results in the order of the terminals.

    A failure in one terminal does not end the command in the others.

    Args:
        terminals: the open terminals.
        command: shell text, or a program and its arguments.
        max_parallel: terminals in which it runs at once; all by default.
        options: those of ``Terminal.run``.

    Raises:
        GatherFailed: at least one terminal raised; its ``outcomes`` have every result and every error.
        UsageError: ``terminals``, ``command``, ``max_parallel`` or the name of an option is wrong; nothing ran.
        asyncio.CancelledError: the task was cancelled; the commands have ended by then.
    """
    if max_parallel is not None and validate_count(max_parallel, "max_parallel") == 0:
        raise UsageError("max_parallel is 0, so no command could run", remedy="1 or more, or None for all at once")
    terminals = _list_terminals(terminals)
    encode_command(command)
    choose_options(options)
    gate = contextlib.nullcontext() if max_parallel is None else asyncio.Semaphore(max_parallel)

    async def run(terminal: Terminal) -> Result | HermesError:
        async with gate:
            try:
                return await terminal.run(command, **options)
            except HermesError as error:
                return error

    outcomes = await gather_or_cancel(run(terminal) for terminal in terminals)
    results = [outcome for outcome in outcomes if not isinstance(outcome, HermesError)]
    if len(results) < len(outcomes):
        raise GatherFailed([terminal.target for terminal in terminals], outcomes)
    return results
