"""Options and arguments that several commands of the agent have.

typer reads annotations at run time, so modules with commands leave `annotations` of `__future__` out.
"""

from typing import Annotated

import typer

from hermes_exec.cli.completion.values import complete_models

_CONVERSATIONS = 30
"""Conversations that are offered, the newest first."""
_TITLE = 60


def complete_skills(incomplete: str) -> list[str]:
    """Complete the name of a registered skill."""
    from hermes_exec.errors import HermesError
    from hermes_exec_agent.skills.registry.home import default_home
    from hermes_exec_agent.skills.registry.registry import Registry

    try:
        known = Registry().skills() if default_home().log.exists() else ()
    except HermesError:
        known = ()
    return sorted(name for name in known if name.startswith(incomplete))


def complete_conversations(incomplete: str) -> list[tuple[str, str]]:
    """Complete the id of a conversation; ``last`` is the newest."""
    from hermes_exec_agent.frontends.chat.listing import LAST, list_conversations
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        found = [(each.id, each.title[:_TITLE]) for each in list_conversations(log, _CONVERSATIONS)]
    return [each for each in [(LAST, "the newest conversation"), *found] if each[0].startswith(incomplete)]


def complete_cron_jobs(incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a scheduled job."""
    from hermes_exec_agent.scheduler.jobs import list_jobs
    from hermes_exec_agent.scheduler.storage import CronStore

    with CronStore.of_user() as store:
        return [(each.name, "") for each in list_jobs(store) if each.name.startswith(incomplete)]


def complete_proposals(incomplete: str) -> list[str]:
    """Complete the name of a proposal."""
    from hermes_exec_agent.learning.proposals import read_proposals
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        return sorted({each.name for each in read_proposals(log) if each.name.startswith(incomplete)})


def complete_servers(incomplete: str) -> list[str]:
    """Complete the name of an MCP server of the configuration."""
    from hermes_exec.config.load import load_settings

    return sorted(name for name in load_settings().mcp if name.startswith(incomplete))


Improve = Annotated[
    bool,
    typer.Option("--improve/--no-improve", help="Repair a skill that fails in use, and run it once more."),
]
MostCost = Annotated[
    float | None, typer.Option(metavar="USD", min=0.000001, help="Limit the cost of one turn, in US dollars.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME", help="Use this model of hermes.toml.", autocompletion=complete_models
    ),
]
Approve = Annotated[
    str,
    typer.Option(metavar="ask|allow|deny", help="Ask before tools that change something, or allow or deny them."),
]
Output = Annotated[
    str | None, typer.Option("--output", "-O", metavar="FILE", help="Write to a new file that only you can read.")
]
CronJob = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a job, or its number.", autocompletion=complete_cron_jobs)
]
Skill = Annotated[str, typer.Argument(metavar="NAME", help="The name of a skill.", autocompletion=complete_skills)]
Skills = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Names of skills; all by default.", autocompletion=complete_skills),
]
Number = Annotated[
    int | None, typer.Option("--version", "-V", metavar="N", help="A version; by default the current one.")
]

Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", "-n", metavar="N", min=1, help="Trials at once; by default from cores and memory."),
]
Attempts = Annotated[int, typer.Option(metavar="N", min=1, max=20, help="Attempts if a target or a model fails.")]
Steps = Annotated[int, typer.Option(metavar="N", min=1, help="Replies of the model in a trial.")]
TimeLimit = Annotated[float, typer.Option(metavar="S", min=0, help="Seconds of the agent in a trial.")]
ReplyTokens = Annotated[int | None, typer.Option(metavar="N", min=1, help="Tokens of a reply.")]
TrialTokens = Annotated[int | None, typer.Option(metavar="N", min=1, help="Cap the tokens of a trial.")]
Tools = Annotated[
    list[str] | None, typer.Option("--tool", metavar="NAME", help="A tool of the agent, or a set; may be repeated.")
]

TrainerUrl = Annotated[str, typer.Option(metavar="URL", help="The address of run-api of Atropos.")]
RlFolder = Annotated[str, typer.Option(metavar="DIR", help="The folder of the environment.")]
