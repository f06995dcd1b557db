"""Proven skills as tools of a server, one each; every run has a sandbox of its own on this machine."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from hermes_exec._async import cancel_and_wait
from hermes_exec_agent.mcp.served_tools import Progress, ServedResult, ServedTool
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.tools.base import ToolArguments

if TYPE_CHECKING:
    from hermes_exec_agent.mcp.served_tools import Report
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry

PREFIX = "skill_"
_BACKEND = "sandbox"
_MOST_LOG = 64 << 10
_LONGEST = 1000


class SkillArguments(ToolArguments):
    """Run a skill."""

    model_config = ConfigDict(extra="allow", frozen=True)


class SkillResult(ServedResult):
    """The result of a skill."""

    skill: str
    version: int
    result: Any = None
    failure: str = Field("", description="One line; empty if it succeeded")
    log: str = Field("", description="The end of its output")
    duration_s: float


def create_skill_tools(registry: Registry) -> tuple[ServedTool, ...]:
    """Return a tool for each skill that may run without a person's approval.

    These are the current versions that are neither archived nor kept back, whose evidence is more than their own tests,
    and that share no folder of the person. One that was imported needs a person's trust, as a client reads its summary.
    """
    from hermes_exec_agent.skills.run.preconditions import read_folders

    tools: list[ServedTool] = []
    for name, skill in sorted(registry.skills().items()):
        if skill.archived or skill.current in skill.kept_back:
            continue
        version = registry.version(name)
        is_untrusted = version.origin.is_material and not skill.is_trusted(version.digest)
        if is_untrusted or version.self_tested or read_folders(version):
            continue
        tools.append(
            ServedTool(
                PREFIX + name,
                SkillArguments,
                SkillResult,
                functools.partial(_run_skill, registry, version),
                reaches_out=True,
                about=f"Run the skill {name} in a sandbox of its own: {flatten(version.summary, _LONGEST)}",
                schema=dict(version.schema),
            )
        )
    return tuple(tools)


async def _run_skill(registry: Registry, version: Version, args: BaseModel, report: Report) -> SkillResult:
    """Run the version that was listed; one that changed since then is refused by its proof."""
    from hermes_exec_agent.skills.run import runner

    arguments: dict[str, Any] = dict(args.model_extra or {})
    ticker = asyncio.create_task(Progress(report).tick())
    try:
        outcome = await runner.run(registry, version.name, arguments, number=version.number, model="mcp")
    finally:
        await cancel_and_wait([ticker])
    return SkillResult(
        ok=outcome.ok, backend=_BACKEND, skill=outcome.name, version=outcome.version, result=outcome.result,
        failure=outcome.error, log=outcome.logs[-_MOST_LOG:], duration_s=round(outcome.seconds, 6),
    )  # fmt: skip
