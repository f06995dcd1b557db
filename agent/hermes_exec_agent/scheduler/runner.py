"""Run a job: a command in its target, or a request to the agent in a conversation of its own."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import home_folder
from hermes_exec.errors import HermesError
from hermes_exec.observe.redact import Redactor
from hermes_exec.terminal.opening import open_plan, plan_open
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.runtime.opening import limit_lease
from hermes_exec_agent.scheduler.slot import SILENT, shorten
from hermes_exec_agent.scheduler.slots import RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.config.plan import Plan
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.scheduler.job import Job, JobSpec
    from hermes_exec_agent.scheduler.slot import Slot
    from hermes_exec_agent.tools.tool import Context, Tool

_OUTPUT = 64 << 10
_LINE = 300
_SPARE_S = 120.0
"""Beyond the time limit of a job, for its target to open and to close."""
_EXCLUDED = frozenset({"clarify", "cronjob"})
"""Tools that a scheduled run does not have: no person can answer, and no job makes jobs."""
_INSTRUCTIONS = (
    "This is a run of the scheduled job {name}. No person watches, and none can answer. Your last message is kept and"
    f" delivered as it is. If the job asks for news and there are none, answer {SILENT} alone."
)
_OUTCOMES = {
    "budget": "its budget of replies is spent",
    "stopped": "it was stopped: no progress, or its time limit",
    "length": "the reply was cut at the maximum length",
    "filtered": "the provider filtered the reply",
    "empty": "the model sent no text",
    "interrupted": "it was interrupted",
}


async def run_job(job: Job, slot: Slot) -> RunResult:  # noqa: ARG001  the shape of `ticker.Run`
    """Run a job once, and return how it ended; cancelled, it leaves nothing running.

    Raises:
        HermesError: its target or its model failed.
    """
    spec = job.spec
    try:
        async with asyncio.timeout(spec.time_limit_s + _SPARE_S):
            return await (_run_command(spec) if spec.is_command else _run_request(job))
    except TimeoutError:
        return RunResult("failed", reason=f"its target or its model gave no answer within {spec.time_limit_s:g} s")


def plan_job(spec: JobSpec) -> Plan:
    """Return the plan of a job's target; on this machine it begins in the home folder, as with cron.

    Raises:
        ConfigError, Unsupported: the target is wrong.
    """
    plan = plan_open(spec.target, cwd=spec.cwd)
    if plan.cwd is None and plan.backend.target == "local":
        plan.cwd = str(home_folder())
    return plan


async def _run_command(spec: JobSpec) -> RunResult:
    plan = await asyncio.to_thread(plan_job, spec)
    limit_lease(plan)
    async with await open_plan(plan, plan.create_audit(wanted=None)) as terminal:
        done = await terminal.run(
            ["/bin/sh", "-c", spec.command], timeout=spec.time_limit_s, merge_stderr=True, max_output=_OUTPUT
        )
    text = shorten(Redactor(tuple(plan.secrets)).redact(done.stdout_text))
    if done.ok:
        return RunResult("completed", text, exit_code=done.exit_code)
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    reason = flatten(f"{done.reason}: {last}" if last else done.reason, _LINE)
    return RunResult("failed", text, reason, exit_code=done.exit_code)


async def _run_request(job: Job) -> RunResult:
    from hermes_exec_agent.models import load_models
    from hermes_exec_agent.runtime.events import EventLog

    spec = job.spec
    plan = await asyncio.to_thread(plan_job, spec)
    models = await asyncio.to_thread(load_models)
    try:
        redactor = Redactor((*plan.secrets, *models.secrets))
        chosen = models.with_main(spec.model) if spec.model is not None else models
        if spec.most_cost is not None:
            from hermes_exec_agent.scheduler.spending import cap_models

            chosen = cap_models(chosen, spec.most_cost)
        with EventLog.of_user(os.environ, redactor=redactor) as log:
            return await _hold_conversation(job, plan.cwd, chosen, log, redactor)
    finally:
        await models.close()


async def _hold_conversation(job: Job, cwd: str | None, models: Models, log: EventLog, redactor: Redactor) -> RunResult:
    from hermes_exec_agent.runtime import Options, open_conversation
    from hermes_exec_agent.tools.absent_person import AbsentPerson
    from hermes_exec_agent.tools.tool import Approvals

    spec = job.spec
    options = Options(
        budget=spec.budget,
        unattended=True,
        instructions=_INSTRUCTIONS.format(name=job.name),
        time_limit_s=spec.time_limit_s,
    )
    opening = open_conversation(
        spec.target, models=models, person=AbsentPerson(), log=log, tools=_create_tools, options=options, cwd=cwd,
        approvals=Approvals(spec.approve), repair_skills=False,
    )  # fmt: skip
    async with opening as conversation:
        try:
            answer = await conversation.ask(_compose_request(spec))
        except HermesError as error:
            reason = redactor.redact(str(error))
            return RunResult("failed", reason=reason, conversation=conversation.id, cost=conversation.usage.cost)
        ended = await conversation.end_background()
        return _to_result(conversation, answer, ended, redactor)


def _compose_request(spec: JobSpec) -> str:
    if not spec.skill:
        return spec.prompt
    return f"Follow the skill {spec.skill}, which skill_view shows. The request:\n\n{spec.prompt}"


def _create_tools(context: Context) -> Sequence[Tool]:
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.tools.toolset import create_instances, find_tools

    classes = find_tools(load_settings().agent.tools)
    return create_instances([each for each in classes if each.name not in _EXCLUDED], context)


def _to_result(conversation: Conversation, answer: Answer, ended: Sequence[str], redactor: Redactor) -> RunResult:
    fields: dict[str, Any] = {
        "text": shorten(redactor.redact(answer.text)), "conversation": conversation.id, "cost": answer.usage.cost,
        "note": "; ".join(f"ended with the job: {each}" for each in ended),
    }  # fmt: skip
    if answer.outcome == "answered":
        return RunResult("completed", **fields)
    return RunResult("failed", reason=_OUTCOMES.get(answer.outcome, answer.outcome), **fields)
