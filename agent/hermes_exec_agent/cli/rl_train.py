"""``rl train``: a trainer that a person starts, and the record of the adapters that it leaves."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.cli.options import RlFolder, TrainerUrl


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
    from hermes_exec_agent.agent_shell import refuse_agents_descendant
    from hermes_exec_agent.rl.training import run_training

    if not command:
        raise UsageError("train has no trainer to run", remedy="rl train -- python train.py")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("train is for a person, and this is no terminal", remedy="the same command at a terminal")
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
