"""The person's own check of an answer: a command in the conversation's target, whose exit code is evidence.

It runs in a shell of its own, so that functions and variables that the model set in its shell do not reach it. The
command is the person's, so no approval is asked. A check that did not end by itself proves nothing, nor does one whose
program is missing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.learning.outcomes import Evidence, find_request, judge_task
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from hermes_exec import Terminal
    from hermes_exec_agent.runtime.events.log import EventLog

_NOT_RUN = frozenset({126, 127})
"""Exit codes of a shell that could not run the command."""
_OUTPUT = 64 << 10
_LINE = 200


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The end of a check."""

    command: str
    exit_code: int | None
    """None if it did not end by itself, or did not run."""
    detail: str
    """How it ended, and the last line of its output if it did not exit with 0; one line."""
    seconds: float = 0.0

    @property
    def evidence(self) -> Evidence | None:
        """The evidence that it is; None if it proves nothing."""
        if self.exit_code is None or self.exit_code in _NOT_RUN:
            return None
        return Evidence("check", self.exit_code == 0, f"{self.command}: exit code {self.exit_code}")

    def describe(self) -> str:
        """Return the check in one line."""
        proof = "" if self.evidence else ", which proves nothing"
        return f"check: {flatten(self.command, _LINE)}: {self.detail}{proof}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields for programs."""
        fields = {"command": self.command, "exit_code": self.exit_code, "seconds": self.seconds}
        return {**fields, "proves": self.evidence is not None}


async def check_task(
    terminal: Terminal, log: EventLog, conversation: str, command: str, *, timeout_s: float
) -> CheckResult:
    """Run the check of the latest task of a conversation in its target, and record its evidence.

    A cancelled check has ended when this raises, and proves nothing.

    Raises:
        HermesError: the evidence could not be recorded.
    """
    result = await run_check(terminal, command, timeout_s)
    if evidence := result.evidence:
        await asyncio.to_thread(_record, log, conversation, evidence)
    return result


def _record(log: EventLog, conversation: str, evidence: Evidence) -> None:
    judge_task(log, conversation, find_request(log, conversation), evidence)


async def run_check(terminal: Terminal, command: str, timeout_s: float, *, cwd: str | None = None) -> CheckResult:
    """Run a check in a shell of its own, in the folder where the target opens or in ``cwd``; nothing is recorded."""
    argv = ["/bin/sh", "-c", command]
    try:
        result = await terminal.run(argv, timeout=timeout_s, cwd=cwd, merge_stderr=True, max_output=_OUTPUT)
    except HermesError as error:
        return CheckResult(command, None, flatten(str(error), _LINE))
    lines = [line for line in result.stdout_text.splitlines() if line.strip()]
    last = f": {flatten(lines[-1], _LINE)}" if lines and not result.ok else ""
    code = None if result.timed_out or result.cancelled else result.exit_code
    return CheckResult(command, code, f"{result.reason}{last}", round(result.duration_s, 3))
