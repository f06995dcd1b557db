"""The words of ``/rollback``, and the lines that list its turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.frontends.chat.export import format_time
from hermes_exec_agent.frontends.chat.safe_text import to_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hermes_exec_agent.runtime.rollback import RollbackStep

_TITLE = 60


def parse_rollback(words: str) -> tuple[int, bool]:
    """Return the number of a turn, or 0 without one, and whether changed files are replaced.

    Raises:
        UsageError: the words mean nothing else.
    """
    given = words.split()
    force = "--force" in given
    numbers = [each for each in given if each != "--force"]
    if not numbers and not force:
        return 0, False
    number = parse_number(numbers[0], 1) if len(numbers) == 1 else None
    if number is None:
        raise UsageError(
            f"/rollback {to_line(words)}: N is the number of a turn", remedy="/rollback, or /rollback N [--force]"
        )
    return number, force


def describe_steps(steps: Iterable[RollbackStep]) -> Iterator[str]:
    """Yield a line for each turn that changed files or may have, and one for each thing that is not covered."""
    is_empty = True
    for step in steps:
        uncovered = step.list_uncovered()
        if not step.changes and not uncovered:
            continue
        is_empty = False
        count = len(step.paths)
        files = "1 file" if count == 1 else f"{count} files"
        yield f"{step.number:>3}  {format_time(step.at)}  {files:<9} {to_line(step.title, _TITLE)}"
        for each in uncovered:
            yield f"     not covered: {each}"
    if is_empty:
        yield "no turn changed files here"
