"""``chat``: talk to the agent, which works in a target."""

from typing import Annotated

import typer

from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json, On
from hermes_exec_agent.cli.options import Approve, Improve, Model, MostCost, complete_conversations
from hermes_exec_agent.cli.skill_judge import Cases
from hermes_exec_agent.cli.start_chat import run_chat
from hermes_exec_agent.frontends.chat.arguments import ChatArguments


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(chat)


def chat(  # noqa: PLR0913  one parameter an option
    on: On = None,
    *,
    query: Annotated[
        str | None,
        typer.Option("--query", "-q", metavar="TEXT", help="Ask one question; - reads it from standard input."),
    ] = None,
    model: Model = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            "-r",
            metavar="ID",
            help="Continue a conversation; last is the newest.",
            autocompletion=complete_conversations,
        ),
    ] = None,
    continue_newest: Annotated[
        bool, typer.Option("--continue", "-c", help="Continue the newest conversation.")
    ] = False,
    fork: Annotated[bool, typer.Option("--fork", help="Start a new conversation from the record of that one.")] = False,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Send a text file or an image with -q; - is standard input. May be repeated.",
        ),
    ] = None,
    approve: Approve = "ask",
    budget: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Limit the replies of the model in one turn.")
    ] = None,
    most_cost: MostCost = None,
    replay: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Replay scripted replies instead of a model; demo is built in."),
    ] = None,
    case: Cases = None,
    improve: Improve = True,
    person: Annotated[
        str | None, typer.Option(metavar="NAME", help="Talk as this person; by default as the owner of this machine.")
    ] = None,
    guest: Annotated[bool, typer.Option("--guest", help="Read and remember nothing about persons and work.")] = False,
    check: Annotated[
        str,
        typer.Option(metavar="COMMAND", help="Run this command in the target after each answer; its exit code counts."),
    ] = "",
    json: Json = False,
) -> int:
    """Talk to the agent, which works in a target with its tools and skills.

    With -q the agent answers one question, with the reply on standard output and its progress on standard error.
    hermes-cli is another name of this command.

    Exit codes: 0; 1 if a question got no answer from the model (budget, guardrail, filter); 2 without a model, with
    instructions to set one up, or if another program is using the conversation.
    """
    return run_chat(
        ChatArguments(
            on,
            query,
            model,
            resume,
            replay,
            approve,
            budget,
            most_cost=most_cost,
            case=case or [],
            json=json,
            quiet=flags.quiet,
            improve=improve,
            continue_newest=continue_newest,
            fork=fork,
            files=file or [],
            person=person,
            guest=guest,
            check=check,
        )
    )
