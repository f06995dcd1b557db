"""The tool by which the agent proposes a scheduled job. A person approves it at a terminal before anything runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import Field

from hermes_exec.errors import UsageError
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.planning import HERE

if TYPE_CHECKING:
    from hermes_exec_agent.tools.tool import Context


class CronArguments(ToolArguments):
    """Propose a job that runs at its times once a person approved it; or list jobs, or remove a proposal."""

    action: str = Field(description="create, list or remove")
    name: str = ""
    schedule: str = Field("", description="'30 8 * * mon-fri', 'every 15m' or 'at 2026-12-01T08:00'")
    prompt: str = Field("", description="Request to an agent that knows nothing of this conversation")
    command: str = Field("", description="Or shell text, without a model")
    report: str = Field("", description="Messenger that reports go to, such as slack; 'last' for the one used last")


class CronJob(BaseTool[CronArguments]):
    """Proposes jobs. No call asks for approval, as a person decides on each job at a terminal."""

    name = "cronjob"
    position = 128
    in_agent = True
    changes = False
    callable_from_scripts = False
    available_to_delegates = False
    arguments_type = CronArguments

    async def run(self, args: CronArguments, context: Context) -> Envelope:
        """Propose, list or withdraw."""
        from hermes_exec_agent.scheduler.proposed_jobs import describe_jobs, propose, withdraw  # slow to import
        from hermes_exec_agent.scheduler.storage import CronStore

        with CronStore.of_user() as store:
            if args.action == "list":
                return Envelope(ok=True, place=HERE, output=await asyncio.to_thread(describe_jobs, store))
            if args.action == "remove":
                return await asyncio.to_thread(withdraw, store, args.name)
            if args.action == "create":
                return await asyncio.to_thread(propose, store, context, **args.model_dump(exclude={"action"}))
        raise UsageError(
            f"cronjob has no action {args.action[:40]!r} for you",
            remedy="create, list or remove; a person does the rest",
        )
