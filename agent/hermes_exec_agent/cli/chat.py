"""``chat``: talk to the agent, which works in a place."""

from typing import Annotated

import typer

from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Improve, Json, On
from hermes_exec_agent.cli.skill_judge import Cases
from hermes_exec_agent.cli.start_chat import talk
from hermes_exec_agent.frontends.chat.options import Asked


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(chat)


def chat(  # noqa: PLR0913  one parameter an option
    on: On = None,
    *,
    query: Annotated[
        str | None, typer.Option("--query", "-q", metavar="TEXT", help="One question; - reads it from standard input.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="NAME", help="A model of hermes.toml.")] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", "-r", metavar="ID", help="Go on with a conversation; last is the newest.")
    ] = None,
    goes_on: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the newest conversation.")] = False,
    fork: Annotated[
        bool, typer.Option("--fork", help="Begin a branch of that conversation, from what is recorded of it.")
    ] = False,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Text to send with -q; - is standard input. May be repeated.",
        ),
    ] = None,
    approve: Annotated[
        str, typer.Option(metavar="ask|allow|deny", help="Whether tools that change something ask first.")
    ] = "ask",
    budget: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Replies of the model that one turn may take.")
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Replies written beforehand instead of a model; demo is one that is here."),
    ] = None,
    case: Cases = None,
    improve: Improve = True,
    json: Json = False,
) -> int:
    """Talk to the agent, which works in a place with its tools and skills.

    With -q it answers one question: the reply goes to standard output, what happens meanwhile to standard error.
    hermes-cli is the same command by another name.

    Exit codes: 0; 1 where one question got no answer of the model's own (its budget, a guardrail, a filter);
    2 without a model, with a screen that says how to set one up, and where another program holds the conversation.
    """
    return talk(
        Asked(
            on,
            query,
            model,
            resume,
            replay,
            approve,
            budget,
            case=case or [],
            json=json,
            quiet=flags.quiet,
            mends=improve,
            goes_on=goes_on,
            fork=fork,
            files=file or [],
        )
    )
