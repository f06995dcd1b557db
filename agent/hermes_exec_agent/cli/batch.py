"""``batch``: run many trials of tasks, watch them, resume them, and report on them."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hermes_exec.cli.completion.values import complete_models, complete_targets
from hermes_exec.cli.console import note, say
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import UsageError
from hermes_exec_agent.cli.batch_results import Run, export, open_run, read_state, regrade, report
from hermes_exec_agent.cli.options import Attempts, Concurrency, ReplyTokens, Steps, TimeLimit, Tools, TrialTokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.batch.coordinator import Coordinator
    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.start import RunPlan

_INTERRUPTED = 130
_CANCEL_S = 90.0

Tasks = Annotated[
    str,
    typer.Argument(
        metavar="TASKS", help="A file with one task a line, a Harbor task or a folder of them, or an entry point."
    ),
]
Dollars = Annotated[
    float | None, typer.Option("--max-money", metavar="DOLLARS", min=0, help="Cap the cost of the whole run.")
]
Tokens = Annotated[int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Cap the tokens of the run.")]
Requests = Annotated[int | None, typer.Option("--max-steps", metavar="N", min=1, help="Cap the requests to models.")]
GpuHours = Annotated[
    float | None, typer.Option("--max-gpu-hours", metavar="H", min=0, help="Cap the GPU hours of shards and targets.")
]
Wall = Annotated[float | None, typer.Option("--max-wall", metavar="S", min=0, help="Cap the seconds of the run.")]
Engine = Annotated[str | None, typer.Option(metavar="NAME", help="local, slurm, ray or modal: where the shards run.")]
Repos = Annotated[str | None, typer.Option(metavar="DIR", help="The folder of clones that rows of SWE-bench name.")]
EngineOptions = Annotated[
    list[str] | None, typer.Option("--engine-option", metavar="KEY=VALUE", help="Of the engine; may be repeated.")
]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/batch.md.")
    for command in (run, status, resume, cancel, report, regrade, export, check, shard):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def run(  # noqa: PLR0913  one parameter an option
    tasks: Tasks,
    *,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            "-o",
            metavar="TARGET",
            help="Run every task there; may be repeated.",
            autocompletion=complete_targets,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="A model of hermes.toml, or replay:FILE; may be repeated.",
            autocompletion=complete_models,
        ),
    ] = None,
    samples: Annotated[int, typer.Option(metavar="N", min=1, help="Trials of each combination.")] = 1,
    agent: Annotated[
        str, typer.Option(metavar="AGENT", help="loop, nop, oracle, or command: and a command line in the target.")
    ] = "loop",
    concurrency: Concurrency = None,
    per_shard: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Trials of one process.")] = 64,
    attempts: Attempts = 3,
    steps: Steps = 90,
    time_limit: TimeLimit = 3600,
    reply_tokens: ReplyTokens = None,
    capture: Annotated[
        Literal["none", "tokens"],
        typer.Option(metavar="none|tokens", help="Record token ids and logprobs, which vLLM and SGLang return."),
    ] = "none",
    tool: Tools = None,
    max_money: Dollars = None,
    max_tokens: Tokens = None,
    max_steps: Requests = None,
    max_wall: Wall = None,
    max_gpu_hours: GpuHours = None,
    trial_money: Annotated[
        float | None, typer.Option(metavar="DOLLARS", min=0, help="Cap the cost of a trial.")
    ] = None,
    trial_tokens: TrialTokens = None,
    starting: Annotated[int, typer.Option(metavar="N", min=1, help="Targets that are opened at once.")] = 32,
    engine: Engine = None,
    engine_option: EngineOptions = None,
    pass_env: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Let tasks read this variable; may be repeated.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(metavar="FILE.py:FUNCTION", help="Check all tasks by this function.")
    ] = None,
    repos: Repos = None,
    into: Annotated[str | None, typer.Option(metavar="DIR", help="The folder of the run; a new one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the trials and the bound of their cost.")] = False,
    json: Json = False,
) -> int:
    """Run each task on each target with each model, and grade the work by the task's check.

    The first Ctrl-C lets running trials end, and the second one ends them. resume continues in either case.

    Exit codes: 0 if all trials are graded, 1 if some are not, 2 for wrong usage, 3 if a cap stopped the run.
    """
    from hermes_exec_agent.batch.start import RunArguments, plan_run

    plan = plan_run(
        RunArguments(
            tasks,
            on or (),
            model or (),
            samples,
            concurrency,
            agent={
                "agent": agent,
                "tools": tuple(tool) if tool else None,
                "steps": steps,
                "time_limit_s": time_limit,
                "max_tokens": reply_tokens,
                "capture": capture,
            },
            caps={
                **_caps(max_money, max_tokens, max_steps, max_wall, max_gpu_hours),
                "trial_money": trial_money,
                "trial_tokens": trial_tokens,
                "starting": starting,
            },
            limits={
                "per_shard": per_shard,
                "attempts": attempts,
                "engine": engine or "local",
                "engine_options": _parse_options(engine_option or ()),
                "pass_env": tuple(dict.fromkeys(pass_env or ())),
            },
            check=check,
            repos=repos,
        )
    )
    if dry_run:
        _print_plan(plan, json=json)
        return 0
    folder = plan.create(Path(into) if into else None)
    note(f"run {folder.path}")
    return _run_epoch(folder, json=json)


def _parse_options(words: "Sequence[str]") -> dict[str, str]:
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (equals and key) or key in options:
            raise UsageError(f"--engine-option {word}: it should be KEY=VALUE, once", remedy="partition=main")
        options[key] = value
    return options


def _caps(
    money: float | None, tokens: int | None, steps: int | None, wall_s: float | None, gpu_hours: float | None
) -> dict[str, Any]:
    return {"money": money, "tokens": tokens, "steps": steps, "wall_s": wall_s, "gpu_hours": gpu_hours}


def _print_plan(plan: "RunPlan", *, json: bool) -> None:
    found = plan.describe()
    if json:
        show_json(found)
        return
    cost = "unknown, as a model has no price" if found["cost"] is None else f"${found['cost']:.4f}"
    print(flags.clean(f"{found['trials']} trials: {found['tasks']} tasks, {found['samples']} samples"))
    print(flags.clean(f"targets: {', '.join(found['targets'])}"))
    print(flags.clean(f"models: {', '.join(found['models']) or 'none'}"))
    print(f"at once: {found['concurrency']} in {found['shards']} shards")
    print(f"upper bound of the cost: {cost}")


def resume(  # noqa: PLR0913  one parameter an option
    run: Run,
    *,
    only: Annotated[
        Literal["failed", "lost", "ungraded"] | None,
        typer.Option(metavar="failed|lost|ungraded", help="Begin these trials again, and no others."),
    ] = None,
    concurrency: Concurrency = None,
    max_money: Dollars = None,
    max_tokens: Tokens = None,
    max_steps: Requests = None,
    max_wall: Wall = None,
    max_gpu_hours: GpuHours = None,
    engine: Engine = None,
    engine_option: EngineOptions = None,
    json: Json = False,
) -> int:
    """Run the trials that have no result yet; it needs nothing but the folder.

    What an earlier command left running is ended first. Options replace the settings of the run for this command.
    """
    folder = open_run(run)
    caps = {
        name: value
        for name, value in _caps(max_money, max_tokens, max_steps, max_wall, max_gpu_hours).items()
        if value is not None
    }
    chosen: dict[str, Any] = {"concurrency": concurrency} if concurrency else {}
    if engine is not None or engine_option:
        from hermes_exec_agent.batch.engine import find_engine

        chosen |= {"engine": engine or folder.settings.engine, "engine_options": _parse_options(engine_option or ())}
        find_engine(chosen["engine"]).check(chosen["engine_options"])
    return _run_epoch(folder, only=only, chosen=chosen, caps=caps, json=json)


def _run_epoch(
    folder: "RunFolder",
    *,
    only: Literal["failed", "lost", "ungraded"] | None = None,
    chosen: "Mapping[str, Any] | None" = None,
    caps: "Mapping[str, Any] | None" = None,
    json: bool,
) -> int:
    from hermes_exec.config.check import validate_table
    from hermes_exec_agent.batch.coordinator import Coordinator
    from hermes_exec_agent.batch.gpu_hours import set_gpus
    from hermes_exec_agent.batch.model_choice import ModelSource
    from hermes_exec_agent.batch.settings import Caps, RunSettings

    values = folder.settings.model_dump()
    values["caps"] = validate_table(Caps, values["caps"] | dict(caps or {}), "caps")
    values |= chosen or {}
    settings = validate_table(RunSettings, values, "settings")
    if settings.caps.gpu_hours is not None:
        settings = set_gpus(settings, {each.target for each in folder.trials})
    if settings.agent.asks_model:
        ModelSource(folder.path / "scripts").check(settings.models, settings.caps)
    coordinator = Coordinator(folder, settings, only=only)
    code = asyncio.run(_supervise(coordinator))
    summary = coordinator.state.summarize()
    if json:
        show_json({"run": str(folder.path), "exit_code": code, "stopped": coordinator.stop, **summary.to_json()})
    if coordinator.note:
        say(f"no more trials were begun: {coordinator.note}")
    if code:
        missing = f"{summary.total - summary.graded} of {summary.total} trials are not graded"
        note(f"{missing}: hermes-exec batch report {folder.path}")
    return code


async def _supervise(coordinator: "Coordinator") -> int:
    from hermes_exec.cli.open_target import hide_environment
    from hermes_exec_agent.batch.progress import ProgressLine

    hide_environment()
    progress = ProgressLine(sys.stderr, quiet=flags.quiet)
    loop = asyncio.get_running_loop()
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        if len(caught) > 2:
            os._exit(128 + number)  # the shards end what they run, as their input ends
        word: Literal["drain", "end"] = "drain" if number == signal.SIGINT and len(caught) == 1 else "end"
        coordinator.request_stop(word)
        with contextlib.suppress(OSError):  # the reader of our messages may have gone
            say(
                "running trials end, and no more begin; Ctrl-C ends them now"
                if word == "drain"
                else "ending all trials"
            )

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    try:
        code = await coordinator.run_epoch(progress.show)
    finally:
        progress.close(coordinator.state.summarize())
    return 128 + caught[0] if caught and code else code


def status(run: Run, *, json: Json = False) -> int:
    """Show how far a run is: done, running, waiting, failures by reason, reward, tokens and cost."""
    from hermes_exec_agent.batch.progress import format_summary

    folder, state = read_state(run)
    holder = folder.find_holder(last) if (last := folder.last_epoch()) else ""
    summary = state.summarize()
    if json:
        show_json({"run": run, "active": bool(holder), **summary.to_json(), "left_s": None})
        return 0
    print(flags.clean(format_summary(summary)))
    print(flags.clean(f"active: {holder}" if holder else "not active"))
    return 0


def cancel(run: Run, *, json: Json = False) -> int:
    """End all running trials of a run, wherever its commands run; resume continues it."""
    folder, state = read_state(run)
    last = folder.last_epoch()
    if last and folder.find_holder(last):
        folder.control(last, "end")
        asyncio.run(_wait_for_end(folder, last))
    state.update()
    state.reconcile()
    open_trials = sum(each.is_running for each in state.trials.values())
    if json:
        show_json({"run": run, "open": open_trials})
    elif open_trials:
        note(f"{open_trials} trials are open; resume ends what they left")
    else:
        note("no trial runs")
    return 0


async def _wait_for_end(folder: "RunFolder", epoch: int) -> None:
    try:
        async with asyncio.timeout(_CANCEL_S):
            while folder.find_holder(epoch):  # noqa: ASYNC110  another process, which notifies by a file
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise UsageError(f"its shards did not end within {_CANCEL_S:g} s", remedy="look at them, then resume") from None


def check(
    tasks: Tasks,
    *,
    pass_env: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Let tasks read this variable; may be repeated.")
    ] = None,
    repos: Repos = None,
    json: Json = False,
) -> int:
    """Check tasks, and report every fault with its file, line and field; nothing is started."""
    from hermes_exec_agent.batch.tasks import TaskFaults, load_tasks

    try:
        found, _ = load_tasks(tasks, pass_env or (), None if repos is None else Path(repos))
    except TaskFaults as error:
        if not json:
            raise
        show_json({"tasks": 0, "faults": error.what.splitlines()})
        return 2
    if json:
        show_json({"tasks": len(found), "faults": []})
    else:
        note(f"{len(found)} tasks, no faults")
    return 0


def shard(
    run: Run,
    *,
    shard: Annotated[str, typer.Option(metavar="ID", help="Its id.")],
    epoch: Annotated[int, typer.Option(metavar="N", help="The epoch that it belongs to.")],
    position: Annotated[int, typer.Option(metavar="N", help="Its number in the epoch.")] = 0,
    slots: Annotated[int, typer.Option(metavar="N", min=1, help="Trials at once.")] = 64,
    detached: Annotated[
        bool, typer.Option("--detached", help="Go on without a standard input, whose end ends the shard otherwise.")
    ] = False,
    grace: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="End the trials that still run so long after SIGUSR1.")
    ] = None,
) -> int:
    """Run trials of an epoch until none is left. Engines start this; see docs/batch.md.

    SIGUSR1 lets running trials end, and SIGTERM ends them.
    """
    from hermes_exec.cli.open_target import hide_environment
    from hermes_exec_agent.batch.shard import run_shard

    hide_environment()
    asyncio.run(run_shard(open_run(run), epoch, shard, position, slots, detached=detached, grace_s=grace))
    return 0
