"""Commands of ``cron`` that run jobs: one job now, all due ones, and the daemon."""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import escape_controls, note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec_agent.agent_shell import refuse_agents_descendant
from hermes_exec_agent.cli.options import CronJob

if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.storage import CronStore
    from hermes_exec_agent.scheduler.ticker import Ticker

Most = Annotated[int, typer.Option(metavar="N", min=1, help="Run at most N jobs at the same time.")]
_MOST = 4


def _create_ticker(store: "CronStore", most: int = _MOST) -> "Ticker":
    from hermes_exec.cli.open_target import hide_environment
    from hermes_exec_agent.scheduler.delivery import send_delivery
    from hermes_exec_agent.scheduler.runner import run_job
    from hermes_exec_agent.scheduler.ticker import Ticker

    hide_environment()
    return Ticker(store, run_job, send_delivery, most=most)


def run(job: CronJob, *, json: Json = False) -> int:
    """Run a job once now, whatever its schedule says, and print its text.

    Exit codes: 0 if the run was completed, else 1.
    """
    refuse_agents_descendant()
    from hermes_exec_agent.scheduler.storage import CronStore

    with CronStore.of_user() as store:
        return interruptible.run(_run(store, job, as_json=json))


async def _run(store: "CronStore", name: str, *, as_json: bool) -> int:
    from hermes_exec_agent.scheduler.jobs import find_job

    job = find_job(store, name)
    slot = await _create_ticker(store).run_now(job)
    if as_json:
        show_json(
            {"job": job.name, "state": slot.state, "reason": slot.reason, "note": slot.note, "text": slot.text,
             "exit_code": slot.exit_code, "conversation": slot.conversation, "cost": slot.cost}
        )  # fmt: skip
    else:
        for line in (slot.text or "").splitlines():
            print(flags.clean(escape_controls(line.replace("\t", "    "))))
        note("; ".join(filter(None, (f"{job.name}: {slot.state}", slot.reason, slot.note))))
    return 0 if slot.state == "completed" else 1


def tick(*, most: Most = _MOST, json: Json = False) -> int:
    """Record and run what is due, deliver what waits, and end; for cron, scrontab and timers.

    While a job runs, those that become due are run, too. Any number of tickers may work at the same time, on any number
    of machines that share the file: each slot runs once.
    """
    from hermes_exec_agent.scheduler.storage import CronStore

    with CronStore.of_user() as store:
        ticker = _create_ticker(store, most)
        code = interruptible.run(_tick(ticker))
    if json:
        show_json({"ran": ticker.ended.total(), **ticker.ended})
    elif ticker.ended:
        note(", ".join(f"{number} {state}" for state, number in sorted(ticker.ended.items())))
    return code


async def _tick(ticker: "Ticker") -> int:
    await ticker.tick()
    return 0


def daemon(*, most: Most = _MOST, json: Json = False) -> int:
    """Run jobs at their time until a signal ends this; runs are then given half a minute to end.

    It needs no privileges, and one daemon, any number of ticks and the agent's server may work at the same time.
    """
    from hermes_exec_agent.scheduler.storage import CronStore

    with CronStore.of_user() as store:
        return interruptible.run(_serve(_create_ticker(store, most), as_json=json))


async def _serve(ticker: "Ticker", *, as_json: bool) -> int:
    if as_json:
        show_json({"pid": os.getpid()})
    else:
        note("jobs run at their time from now on")
    try:
        await ticker.serve()
    except asyncio.CancelledError:
        return 0  # a signal ended it, after its runs
    return 0
