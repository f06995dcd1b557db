"""Start the chat, and tell where it cannot be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import USAGE, report
from hermes_exec.cli.global_flags import flags
from hermes_exec_agent.errors import NoModel

if TYPE_CHECKING:
    from hermes_exec.errors import HermesError
    from hermes_exec_agent.frontends.chat.options import Asked


def talk(asked: Asked) -> int:
    """Chat, and give the exit code."""
    return interruptible.run(_chat(asked))


async def _chat(asked: Asked) -> int:
    from hermes_exec.cli.open_target import folder_of, hide_environment, planned
    from hermes_exec_agent.frontends.chat.start import start

    hide_environment()
    plan = planned(asked.on)  # opening it is the chat's
    try:
        return await start(asked, _told, cwd=folder_of(plan), secrets=plan.secrets)
    except NoModel as error:
        from hermes_exec_agent.frontends.chat.setup_help import screen

        print(flags.clean(screen(error.what, error.looked_for)), end="", file=sys.stderr)
        return USAGE


def _told(error: HermesError) -> None:
    report(error)
