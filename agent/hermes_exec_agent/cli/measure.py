"""``learn measure``: the effect of a skill or of an entry of memory on labelled tasks."""

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.cli.options import Approve, Model, Number, complete_skills

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec.config.plan import Plan as TargetPlan
    from hermes_exec_agent.learning.measure import Measurement, Plan, Sample, Subject
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Approvals, Mode, Person

_BUDGET = 90


def measure(  # noqa: PLR0913  one parameter an option
    tasks: Annotated[
        Path,
        typer.Argument(metavar="TASKS", help="A file of one JSON object a line: instruction, check, folder, setup."),
    ],
    *,
    skill: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Measure a skill: hide it in every other sample.",
            autocompletion=complete_skills,
        ),
    ] = "",
    entry: Annotated[
        str, typer.Option(metavar="TEXT", help="Measure an entry of memory: show it in every other sample.")
    ] = "",
    number: Number = None,
    samples: Annotated[
        int, typer.Option("--samples", "-n", metavar="N", min=1, help="Run each task N times with it and without it.")
    ] = 5,
    on: On = None,
    model: Model = None,
    replay: Annotated[
        str | None, typer.Option(metavar="FILE", help="Replay scripted replies in each sample instead of a model.")
    ] = None,
    approve: Approve = "ask",
    budget: Annotated[int, typer.Option(metavar="N", min=1, help="Limit the replies of the model in a sample.")] = (
        _BUDGET
    ),
    resume: Annotated[
        bool, typer.Option("--resume", "-r", help="Continue the latest measurement that was interrupted.")
    ] = False,
    json: Json = False,
) -> int:
    """Run labelled tasks with and without a skill or an entry of memory, in turns, and report the difference.

    Each sample is a conversation of its own in a fresh folder of the target. The exit code of the task's check tells
    whether it succeeded; a check that cannot run is not counted. Nothing of it is remembered, and no skill changes.

    Exit codes: 0 if the difference was measured; 1 if no pair of samples was graded; 2 if the command line or a task is
    wrong; 125 if the model or the target failed; 130 after Ctrl-C. Results until then are kept and shown.
    """
    refuse_agent("learn measure")
    if bool(skill) == bool(entry):
        raise UsageError("one skill or one entry is measured", remedy="--skill NAME or --entry TEXT")
    if number is not None and not skill:
        raise UsageError("--version needs --skill", remedy="leave it out")
    if replay is not None and model is not None:
        raise UsageError("--replay excludes --model", remedy="leave one of them out")
    from hermes_exec.cli.open_target import hide_environment, plan_target
    from hermes_exec_agent.learning.measure import Plan, Subject, read_tasks

    found = read_tasks(tasks)
    subject = _find_skill(skill, number) if skill else Subject("entry", entry)
    hide_environment()
    opener = plan_target(on)
    load, approvals, name = _load_models(model, replay, approve)
    plan = Plan(found, subject, samples, name, on or opener.backend.target, approve, budget)
    return interruptible.run(_measure(plan, opener, load, approvals, resume=resume, json=json))


def _find_skill(name: str, number: int | None) -> "Subject":
    from hermes_exec_agent.learning.measure import Subject
    from hermes_exec_agent.learning.measured_registry import choose_version

    found, version = choose_version(name, number)
    return Subject("skill", found, version)


def _load_models(model: str | None, replay: str | None, approve: str) -> "tuple[Callable[[], Models], Approvals, str]":
    """Return a function that returns the models of a sample, the approvals, and the name of the main model."""
    from hermes_exec_agent.frontends.chat.replay import read_replay
    from hermes_exec_agent.models import Models, load_models
    from hermes_exec_agent.tools.tool import Approvals

    mode = cast("Mode", approve)
    if replay is not None:
        script = read_replay(replay)
        harmless = script.harmless if mode == "ask" else ()
        approvals = Approvals(mode, dict.fromkeys(harmless, "allow"))
        return lambda: Models(read_replay(replay).model), approvals, script.model.name
    models = load_models()
    chosen = models if model is None else models.with_main(model)
    return lambda: chosen, Approvals(mode), chosen.main.name


async def _measure(
    plan: "Plan",
    opener: "TargetPlan",
    models: "Callable[[], Models]",
    approvals: "Approvals",
    *,
    resume: bool,
    json: bool,
) -> int:
    from hermes_exec.observe.redact import Redactor
    from hermes_exec_agent.learning.measure import Measurement
    from hermes_exec_agent.runtime.events import EventLog

    redactor = Redactor((*opener.secrets, *models().secrets))
    with EventLog.of_user(redactor=redactor) as log:
        measurement = Measurement.resume(log, plan) if resume else Measurement.begin(log, plan)
        with EventLog(measurement.conversations, redactor=redactor) as own:
            try:
                await _take_samples(measurement, own, opener, models, approvals)
            finally:
                await models().close()
                graded = _show(measurement, json=json)
    return 0 if graded else CHECK_FAILED


async def _take_samples(
    measurement: "Measurement",
    log: "EventLog",
    opener: "TargetPlan",
    models: "Callable[[], Models]",
    approvals: "Approvals",
) -> None:
    from hermes_exec.cli.open_target import open_planned
    from hermes_exec_agent.learning.measure import Bench

    total = len(measurement.samples) + len(measurement.list_missing())

    def tell(sample: "Sample") -> None:
        done = len(measurement.samples)
        how = sample.result if sample.result != "ungraded" else f"ungraded: {sample.detail}"
        note(f"{done} of {total}: task {sample.task}, {sample.arm}: {how} ({sample.calls} calls)")

    with tempfile.TemporaryDirectory(prefix="hermes-measure-") as scratch:
        async with open_planned(opener) as terminal:
            bench = await asyncio.to_thread(
                Bench, terminal, log, measurement.plan, Path(scratch), models=models, person=_person(),
                approvals=approvals,
            )  # fmt: skip
            await measurement.run(bench, tell)


def _person() -> "Person":
    import sys

    from hermes_exec_agent.frontends.chat.approver import TerminalApprover
    from hermes_exec_agent.frontends.chat.keyboard import Keyboard
    from hermes_exec_agent.tools.absent_person import AbsentPerson

    return TerminalApprover(Keyboard()) if sys.stdin.isatty() else AbsentPerson()


def _show(measurement: "Measurement", *, json: bool) -> bool:
    """Print the report of the samples so far, and return whether a pair of them was graded."""
    from hermes_exec_agent.learning.measure_report import HEADS, create_report, describe_difference, list_rows

    report = create_report(measurement)
    if report["missing"]:
        note(f"stopped: {report['missing']} samples are missing; the same command with --resume takes them")
    if json:
        show_json(report)
    elif report["samples"]:
        subject = measurement.plan.subject.describe()
        note(f"{subject}, model {report['model']}, target {report['target']}")
        show_table(HEADS, list_rows(report))
        print(describe_difference(report), flush=True)
        if report["ungraded"]:
            note(f"ungraded, and not counted: {len(report['ungraded'])} samples")
    return bool(report["difference"]["pairs"])
