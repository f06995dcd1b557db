"""Hold a conversation with an agent whose model is a script.

The tools, the approvals and the record are real; only the replies were written beforehand, so the example needs neither
a key nor a network. Replace the scripted model by ``load_models()`` to ask a real one.

    python examples/scripted_agent.py [TARGET]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.runtime import CallEnded, Ended, Text, open_conversation
from hermes_exec_agent.runtime.events import EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence


class AllowEverything:
    """The person: allows each change, and answers each question with the first choice."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        """Allow it, and show it."""
        print(f"[allowed] {tool}: {summary}")
        return True

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        """Take the first choice."""
        return choices[0] if choices else ""


async def run(target: str, folder: Path) -> None:
    """Ask one question, and print what happens."""
    model = ScriptedModel(
        [
            ask(("terminal", {"command": "mkdir -p sales && printf 'Apples,3\\nPears,4\\n' > sales/report.csv"})),
            ask(("read_file", {"path": "sales/report.csv"})),
            say("The report is in sales/report.csv and has two lines."),
        ]
    )
    log = EventLog(folder / "conversations.sqlite")
    async with open_conversation(
        target, models=Models(model), person=AllowEverything(), log=log, cwd=str(folder)
    ) as conversation:
        async for update in conversation.turn("write a report of my sales"):
            if isinstance(update, CallEnded):
                print(f"[tool] {update.call.name}: {'ok' if update.envelope.ok else 'failed'}")
            elif isinstance(update, Text):
                print(update.text, end="")
            elif isinstance(update, Ended):
                print(f"\n[{update.answer.outcome}] {update.answer.calls} calls in {update.answer.steps} replies")


def main(target: str = "local") -> None:
    """Run the example on ``target``."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(target, Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
