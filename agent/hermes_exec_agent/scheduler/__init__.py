"""Scheduled jobs: requests to the agent and plain commands that run at their time, each recorded whatever happens."""

from hermes_exec._lazy import lazy_loader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec_agent.scheduler.delivery import Channel
    from hermes_exec_agent.scheduler.job import Job, JobSpec
    from hermes_exec_agent.scheduler.schedule import parse_schedule
    from hermes_exec_agent.scheduler.slot import Slot
    from hermes_exec_agent.scheduler.slots import RunResult
    from hermes_exec_agent.scheduler.storage import CronStore
    from hermes_exec_agent.scheduler.ticker import Clock, SystemClock, Ticker

_MODULES = {
    "Channel": "delivery",
    "Clock": "ticker",
    "CronStore": "storage",
    "Job": "job",
    "JobSpec": "job",
    "RunResult": "slots",
    "Slot": "slot",
    "SystemClock": "ticker",
    "Ticker": "ticker",
    "parse_schedule": "schedule",
}

__all__ = [
    "Channel",
    "Clock",
    "CronStore",
    "Job",
    "JobSpec",
    "RunResult",
    "Slot",
    "SystemClock",
    "Ticker",
    "parse_schedule",
]

__getattr__ = lazy_loader(__name__, _MODULES)
