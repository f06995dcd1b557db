"""Start the chat, and tell where it cannot be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hermes_exec.cli import loop
from hermes_exec.cli.flags import flags
from hermes_exec.cli.say import USAGE, report
from hermes_exec_agent.errors import NoModel

if TYPE_CHECKING:
    from hermes_exec.errors import HermesError
    from hermes_exec_agent.chat.asked import Asked


def talk(asked: Asked) -> int:
    """Chat, and give the exit code."""
    return loop.run(_chat(asked))


async def _chat(asked: Asked) -> int:
    from hermes_exec.cli.places import folder_of, hide_environment, planned
    from hermes_exec_agent.chat.start import start

    hide_environment()
    plan = planned(asked.on)  # opening it is the chat's
    try:
        return await start(asked, _told, cwd=folder_of(plan), secrets=plan.secrets)
    except NoModel as error:
        from hermes_exec_agent.chat.setting_up import screen

        print(flags.clean(screen(error.what, error.looked_for)), end="", file=sys.stderr)
        return USAGE


def _told(error: HermesError) -> None:
    report(error)
