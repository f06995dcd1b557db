"""What an agent may do without being asked: the same in every place, because no place has a say in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hermes_exec.errors import ConfigError, HermesError
from hermes_exec_agent.tools.envelope import Failure
from hermes_exec_agent.tools.stopwatch import pause_stopwatches

if TYPE_CHECKING:
    from hermes_exec_agent.tools.tool import Context

Mode = Literal["ask", "allow", "deny"]
MODES: tuple[Mode, ...] = ("ask", "allow", "deny")
_LONGEST = 2000


class Denied(HermesError):
    """A read that may not be done; nothing of it reached the model."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """``mode`` holds for every tool that can change something, unless ``tools`` says otherwise for one by its name."""

    mode: Mode = "ask"
    tools: Mapping[str, Mode] = field(default_factory=dict[str, Mode])

    def __post_init__(self) -> None:
        for mode in (self.mode, *self.tools.values()):
            if mode not in MODES:
                raise ConfigError(f"approvals: {mode!r}", remedy=f"one of {', '.join(MODES)}")

    def of(self, tool: str) -> Mode:
        """How it is with a tool."""
        return self.tools.get(tool, self.mode)


async def refusal(
    tool: str, summary: str, context: Context, *, scope: str = "", always: bool = False
) -> Failure | None:
    """Why a call may not be made, or None. Where nobody is there to be asked, the answer is no.

    Args:
        tool: its name.
        summary: what is to be done.
        context: of the conversation.
        scope: what a lasting yes holds for; the tool, if it is empty.
        always: ask also where the tool is allowed.
    """
    mode = context.approvals.of(tool)
    if mode == "allow" and not always:
        return None
    line = safe(summary)
    if mode == "deny":
        what = (
            f"{tool} may not {line}: denied by the settings" if scope else f"{tool} is not allowed in this conversation"
        )
        answer, why = "denied by the settings", f"{what}; do without it"
    else:
        answer, why = await _asked(tool, line, scope, context)
    context.record("approval", {"tool": tool, "summary": line, "answer": answer})
    return Failure("denied", why) if why else None


async def _asked(tool: str, line: str, scope: str, context: Context) -> tuple[str, str]:
    """The answer for the log, and the reason of a no."""
    try:
        if await approve(tool, line, context, scope):
            return "approved", ""
    except HermesError as error:
        what = f"{tool} needs somebody's approval" + (f" to {line}" if scope else "")
        return "nobody there", f"{what}: {error}"
    return "denied", "the person said no. Do not try the same in another way; ask what they want instead"


async def approve(tool: str, line: str, context: Context, scope: str = "") -> bool:
    """Ask the person; the time in which they think is not the call's.

    Raises:
        Unsupported: nobody is there.
    """
    with pause_stopwatches():
        return await context.person.approve(tool, line, scope)


def safe(text: str) -> str:
    """One line of bounded length that moves no cursor: what is quoted comes from a model.

    Of a longer one the end is shown too, and how much is missing: nothing can be hidden behind a long beginning.
    """
    flat = " ".join(text.split())
    clean = "".join(each if each.isprintable() else "?" for each in flat)
    if len(clean) <= _LONGEST:
        return clean
    half = _LONGEST // 2
    return f"{clean[:half]} [... {len(clean) - 2 * half} characters are not shown ...] {clean[-half:]}"
