"""Start a chat: the work of ``chat``, and the parser of its plain command lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hermes_exec.cli.fast_args import parse_plain
from hermes_exec_agent.frontends.chat.arguments import ChatArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec.errors import HermesError

_VALUES = {
    "--on": "on",
    "-o": "on",
    "--query": "query",
    "-q": "query",
    "--model": "model",
    "-m": "model",
    "--resume": "resume",
    "-r": "resume",
    "--approve": "approve",
    "--replay": "replay",
    "--check": "check",
    "--person": "person",
}
_SWITCHES = {
    "--json": ("json", True),
    "--continue": ("continue_newest", True),
    "-c": ("continue_newest", True),
    "--guest": ("guest", True),
}


def parse_chat(argv: Sequence[str]) -> ChatArguments | None:
    """Parse a command line if it is a plain ``chat``."""
    parsed = parse_plain(argv[1:], _VALUES, _SWITCHES) if argv[:1] == ["chat"] else None
    return ChatArguments(**parsed[0]) if parsed and not parsed[1] else None


def prepare_chat(argv: Sequence[str]) -> Callable[[], int] | None:
    """Return a function that runs a plain ``chat``; None for any other command line."""
    arguments = parse_chat(argv)
    return None if arguments is None else lambda: run_chat(arguments)


def run_chat(arguments: ChatArguments) -> int:
    """Chat, and return the exit code."""
    from hermes_exec.cli import interruptible
    from hermes_exec_agent.frontends.chat.keyboard import Keyboard

    return interruptible.run(_chat(arguments), Keyboard.restore)


async def _chat(arguments: ChatArguments) -> int:
    from hermes_exec.cli.console import USAGE
    from hermes_exec.cli.global_flags import flags
    from hermes_exec.cli.open_target import hide_environment, plan_target, start_folder
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.frontends.chat.start import start_chat

    if arguments.check:
        from hermes_exec_agent.agent_shell import refuse_agent

        refuse_agent()
    hide_environment()
    plan = plan_target(arguments.on)  # the chat opens it
    try:
        return await start_chat(arguments, _report, cwd=start_folder(plan), secrets=plan.secrets)
    except NoModel as error:
        if flags.json:
            raise
        from hermes_exec_agent.frontends.chat.setup_help import format_setup_help

        print(flags.clean(format_setup_help(error.what, error.looked_for)), end="", file=sys.stderr)
        return USAGE


def _report(error: HermesError) -> None:
    from hermes_exec.cli.console import report

    report(error)
