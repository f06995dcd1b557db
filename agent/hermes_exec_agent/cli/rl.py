"""``rl``: scored groups of trials for a trainer, and the server of the model that is trained."""

import asyncio
import contextlib
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli.completion.values import complete_models
from hermes_exec.cli.console import note, say
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.cli.options import (
    Attempts,
    Concurrency,
    ReplyTokens,
    RlFolder,
    Steps,
    TimeLimit,
    Tools,
    TrainerUrl,
    TrialTokens,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.batch.start import RunArguments, RunPlan
    from hermes_exec_agent.rl.environment import EnvironmentSettings
    from hermes_exec_agent.rl.policy import PolicyOrder

_INTERRUPTED = 130
_PLACEHOLDER = "http://127.0.0.1:9/v1"
"""The address of the policy until its server runs."""


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/rl.md.")
    for command in (serve, train, status):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def serve(  # noqa: PLR0913  one parameter an option
    tasks: Annotated[
        str, typer.Argument(metavar="TASKS", help="A file with one task a line, or another source of batch run.")
    ],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="The server of --policy.")
    ] = None,
    *,
    trainer: TrainerUrl = "http://127.0.0.1:8000",
    on: Annotated[str | None, typer.Option("--on", "-o", metavar="TARGET", help="Run every task there.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME", help="The policy: a model of hermes.toml.", autocompletion=complete_models
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Run the server COMMAND there, and ask it.")
    ] = None,
    policy_port: Annotated[int, typer.Option(metavar="PORT", min=1, max=65535, help="That it listens on.")] = 8000,
    policy_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name for the model; by default the first that it lists.")
    ] = None,
    policy_wait: Annotated[float, typer.Option(metavar="S", min=0, help="Seconds until it has to answer.")] = 1800,
    policy_restart: Annotated[
        bool,
        typer.Option(
            "--policy-restart",
            help="Start the server again for each adapter, with its folder in HERMES_EXEC_ADAPTER and its name in "
            "HERMES_EXEC_POLICY, instead of asking the server to load it.",
        ),
    ] = False,
    adapters: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Load the newest LoRA adapter in this folder before each round; by default adapters of --into.",
        ),
    ] = None,
    group_size: Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="Trials of a group.")] = 8,
    groups: Annotated[int, typer.Option(metavar="N", min=1, help="Tasks of a round, each with one group.")] = 4,
    rounds: Annotated[int | None, typer.Option(metavar="N", min=1, help="End after so many rounds.")] = None,
    ahead: Annotated[
        int, typer.Option(metavar="N", min=1, help="Begin no round while so many groups wait for the trainer.")
    ] = 8,
    trainer_wait: Annotated[
        float,
        typer.Option(metavar="S", min=0, help="Seconds to wait for the trainer's first and each next batch."),
    ] = 3600,
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the environment at the trainer.")] = "hermes_exec",
    weight: Annotated[float, typer.Option(metavar="W", min=0, help="Of the environment at the trainer.")] = 1.0,
    send_equal: Annotated[
        bool, typer.Option("--send-equal", help="Also post groups whose scores are all equal.")
    ] = False,
    concurrency: Concurrency = None,
    attempts: Attempts = 5,
    steps: Steps = 90,
    time_limit: TimeLimit = 3600,
    reply_tokens: ReplyTokens = None,
    trial_tokens: TrialTokens = None,
    tool: Tools = None,
    check: Annotated[
        str | None, typer.Option(metavar="FILE.py:FUNCTION", help="Score all tasks by this function.")
    ] = None,
    into: RlFolder = "rl",
    json: Json = False,
) -> int:
    """Run trials of tasks in rounds, and post each whole group of scored trials to the trainer once.

    It waits for the trainer's first request for a batch. With --policy it also runs the server of the model, which has
    to return token ids and logprobs, as vLLM and SGLang do. The first Ctrl-C lets running trials end, the second one
    ends them.

    Exit codes: 0 if it ended by itself or by Ctrl-C, 125 if the trainer or the policy failed, 2 for wrong usage,
    130 after a signal before the policy answered.
    """
    from hermes_exec_agent.batch.start import RunArguments
    from hermes_exec_agent.rl.environment import EnvironmentSettings

    if not math.isfinite(weight):
        raise UsageError(f"--weight {weight:g}: it is not a finite number")
    order = _read_policy(policy, command or (), policy_port, policy_model, policy_wait, adapters, model, Path(into))
    if policy_restart:
        if order is None:
            raise UsageError("--policy-restart needs --policy", remedy="--policy TARGET")
        order = replace(order, restarts=True)
    plan = _plan(
        RunArguments(
            tasks,
            (on,) if on else (),
            (model,) if model else (),
            group_size,
            concurrency,
            agent={
                "tools": tuple(tool) if tool else None,
                "steps": steps,
                "time_limit_s": time_limit,
                "max_tokens": reply_tokens,
                "capture": "tokens",
            },
            caps={"trial_tokens": trial_tokens},
            limits={"attempts": attempts},
            check=check,
        )
    )
    settings = EnvironmentSettings(
        name=name, group_size=group_size, groups=groups, rounds=rounds, ahead=ahead, weight=weight,
        send_equal=send_equal,
    )  # fmt: skip
    try:
        counts = asyncio.run(_serve(plan, settings, order, trainer, trainer_wait, Path(into)))
    except asyncio.CancelledError:  # by a signal, before there was an environment
        return _INTERRUPTED
    if json:
        show_json({"folder": into, "groups": dict(counts)})
    return 0


def _read_policy(
    target: str | None,
    command: "Sequence[str]",
    port: int,
    name: str | None,
    wait_s: float,
    adapters: str | None,
    model: str | None,
    into: Path,
) -> "PolicyOrder | None":
    """Return the server to run, and let the environment name it as the model."""
    if target is None:
        if command or adapters or name:
            raise UsageError(
                "a server's command line, --policy-model and --adapters need --policy", remedy="--policy TARGET"
            )
        return None
    if not command:
        raise UsageError("--policy has no server to run", remedy="--policy TARGET -- vllm serve MODEL")
    if model is not None:
        raise UsageError("--policy is the model, so that --model has no meaning", remedy="leave one of them out")
    if adapters is not None and not Path(adapters).is_dir():
        raise UsageError(f"--adapters {to_printable(adapters)}: it is not a folder")
    from hermes_exec_agent.rl.policy import PolicyOrder

    os.environ.update({"LLM_PROVIDER": "vllm", "LLM_BASE_URL": _PLACEHOLDER, "DEFAULT_MODEL": name or "policy"})
    for each in ("FALLBACK_MODELS", "AUXILIARY_MODEL"):
        os.environ.pop(each, None)
    folder = Path(adapters) if adapters else into / "adapters"
    return PolicyOrder(target, command, port, name or "", wait_s, folder, into)


def _plan(arguments: "RunArguments") -> "RunPlan":
    """Return the plan of the trials, whose model has tokens of its own."""
    from hermes_exec.extras import require
    from hermes_exec_agent.batch.model_choice import ModelSource, is_scripted
    from hermes_exec_agent.batch.start import plan_run
    from hermes_exec_agent.models.fallback import Fallback

    require("agent", "trials of the agent")
    require("rl", "groups for a trainer")
    for each in arguments.models:
        if is_scripted(each):
            raise UsageError(
                f"--model {to_printable(each)}: scripted replies have no tokens", remedy="a model that runs"
            )
    plan = plan_run(arguments)
    for each in plan.settings.models:
        if isinstance(ModelSource(Path(os.devnull)).find(each).main, Fallback):
            raise UsageError(
                f"the model {to_printable(each)} has fallbacks, whose tokens the policy did not write",
                remedy="a model without fallbacks",
            )
    return plan


async def _serve(
    plan: "RunPlan",
    settings: "EnvironmentSettings",
    order: "PolicyOrder | None",
    url: str,
    wait_s: float,
    folder: Path,
) -> "Counter[str]":
    from hermes_exec.cli.open_target import hide_environment
    from hermes_exec_agent.rl.environment import Environment
    from hermes_exec_agent.rl.group_record import GroupRecord
    from hermes_exec_agent.rl.policy import serve_policy
    from hermes_exec_agent.rl.trainer import TrainerClient

    hide_environment()
    record = GroupRecord(folder)
    client = TrainerClient(url, wait_s=wait_s, say=note)
    main = asyncio.current_task()
    stop = _Stop(lambda: main.cancel() if main is not None else None)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(stop)
        stack.enter_context(record.hold())
        server = None
        if order is not None:
            server = await stack.enter_async_context(serve_policy(order, note))
            os.environ["LLM_BASE_URL"] = f"{server.url}/v1"
            if server.window is not None:
                os.environ["LLM_CONTEXT"] = str(max(server.window, 1024))
        await stack.enter_async_context(client)
        environment = Environment(plan, settings, record, client, policy=server, clean=flags.clean, say=note)
        stop.handler = environment.stop
        await environment.run()
        return environment.counts


class _Stop:
    """Lets signals stop the environment: the first Ctrl-C after the running trials, another signal at once."""

    def __init__(self, cancel: "Callable[[], object]") -> None:
        """``cancel`` ends the program before there is an environment."""
        self._cancel = cancel
        self._count = 0
        self.handler: Callable[..., None] | None = None

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._stop, number)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        self._count += 1
        at_once = number != signal.SIGINT or self._count > 1
        with contextlib.suppress(OSError):  # the reader of our messages may have gone
            say("ending all trials" if at_once else "running trials end, and no more begin; Ctrl-C ends them now")
        if self.handler is None:
            self._cancel()
        else:
            self.handler(at_once=at_once)


def status(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder of an environment.")] = "rl",
    *,
    json: Json = False,
) -> int:
    """Show how many groups were posted, were not answered, or were dropped, and why."""
    from hermes_exec_agent.rl.group_record import GroupRecord

    counts = GroupRecord(Path(folder)).count()
    if json:
        show_json({"folder": folder, "groups": dict(sorted(counts.items()))})
        return 0
    for name, count in sorted(counts.items()):
        print(flags.clean(f"{count:>6}  {name}"))
    if not counts:
        note("no groups")
    return 0


def train(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="The trainer's command line.")
    ] = None,
    *,
    trainer: TrainerUrl = "http://127.0.0.1:8000",
    adapters: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The folder for its LoRA adapters; by default adapters of --into."),
    ] = None,
    into: RlFolder = "rl",
    json: Json = False,
) -> int:
    """Run a trainer at this terminal until it ends, and record the LoRA adapters that it leaves.

    Its variables HERMES_EXEC_RL_URL, HERMES_EXEC_RL_ADAPTERS and HERMES_EXEC_RL_FOLDER have the address of the server
    with the groups, and the two folders. rl serve --policy loads the newest adapter before each round. A person starts
    each training: it is refused without a terminal, and in the shell of an agent.

    Exit codes: 0 if the trainer left an adapter, 125 if it failed or left none, 2 for wrong usage.
    """
    from hermes_exec_agent.agent_shell import refuse_agents_descendant, require_terminal
    from hermes_exec_agent.rl.training import run_training

    if not command:
        raise UsageError("train has no trainer to run", remedy="rl train -- python train.py")
    require_terminal("train")
    refuse_agents_descendant()
    place = Path(adapters) if adapters else Path(into) / "adapters"
    end = run_training(command, Path(into), place, trainer)
    for path, fault in end.faults.items():
        note(flags.clean(f"left out: {to_printable(path)}: {fault}"))
    if json:
        policies = [{"policy": each.policy, "digest": each.digest, "folder": str(each.folder)} for each in end.adapters]
        show_json({"folder": into, "policies": policies, "failure": end.reason or None})
    else:
        for each in end.adapters:
            print(flags.clean(f"{each.policy}  {to_printable(each.folder)}"))
    if end.reason:
        raise HermesError(end.reason, remedy="its output; the adapters that it left whole are recorded")
    if not end.adapters:
        raise HermesError(f"the trainer left no new adapter in {to_printable(place)}", remedy="its output folder")
    return 0
