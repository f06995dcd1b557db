"""``batch report``, ``regrade`` and ``export``: what a run found."""

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping

    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.run_state import RunState
    from hermes_exec_agent.batch.trajectories.reading import Trajectory, TrajectoryReader

Run = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run.")]
Rewards = Annotated[
    str | None, typer.Option(metavar="NAME", help="Use the rewards of this regrade in place of the checks'.")
]
Form = Literal["results", "openai", "sharegpt", "atif", "tokens", "preds"]


def open_run(run: str) -> "RunFolder":
    """Open the folder of a run, whose tasks and settings must be unchanged."""
    from hermes_exec_agent.batch.run_folder import RunFolder

    return RunFolder.open(Path(run))


def read_state(run: str, rewards: str | None = None) -> "tuple[RunFolder, RunState]":
    """Return the folder and the state of a run, with the rewards of a regrade if one is named."""
    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.run_state import RunState

    if not (Path(run) / "run.json").is_file():
        raise UsageError(f"{run}: it is not the folder of a run", remedy="the folder that run printed")
    folder = RunFolder(Path(run))
    state = RunState(folder)
    state.update()
    state.reconcile()
    if rewards is not None:
        from hermes_exec_agent.batch.regrade import apply_rewards

        apply_rewards(folder, state, rewards)
    return folder, state


def report(
    run: Run,
    *,
    by: Annotated[
        list[str] | None, typer.Option(metavar="task|target|model", help="Group by this; may be repeated.")
    ] = None,
    rewards: Rewards = None,
    json: Json = False,
) -> int:
    """Report trials, mean reward, failures, tokens and cost, by task, target and model."""
    from hermes_exec_agent.batch.report import group_results

    names = tuple(dict.fromkeys(by or ("task", "target", "model")))
    if unknown := [name for name in names if name not in ("task", "target", "model")]:
        raise UsageError(f"--by {unknown[0]}: there is no such column", remedy="task, target or model")
    rows = group_results(read_state(run, rewards)[1], names)
    if json:
        show_json(rows)
        return 0
    heads = [*(name.upper() for name in names), "TRIALS", "GRADED", "REWARD", "FAILURES", "TOKENS", "COST"]
    show_table(heads, [[*(str(row[name]) or "-" for name in names), *_format_row(row)] for row in rows])
    return 0


def _format_row(row: "Mapping[str, Any]") -> list[str]:
    failures = ", ".join(f"{name} {number}" for name, number in sorted(row["failures"].items()))
    reward = "-" if row["reward"] is None else f"{row['reward']:.3f}"
    cost = "-" if row["cost"] is None else f"${row['cost']:.4f}"
    return [str(row["trials"]), str(row["graded"]), reward, failures or "-", str(row["tokens"]), cost]


def regrade(
    run: Run,
    *,
    reward: Annotated[
        str, typer.Option(metavar="MODULE:FUNCTION", help="A function of a recorded trial; or FILE.py:FUNCTION.")
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of these rewards; by default the function's.")
    ] = None,
    json: Json = False,
) -> int:
    """Score the recorded trials by a function of yours, without running them again.

    It gets a mapping with task, result, messages and events, and returns a number, or a mapping with reward and further
    numbers. The rewards of the checks stay; report and export use the new ones with --rewards NAME.

    Exit codes: 0 if every trial has a reward, 1 if the function failed for some.
    """
    from hermes_exec_agent.batch.regrade import Regrade

    folder, state = read_state(run)
    regrading = Regrade(folder, state, reward, name, flags.clean)
    failed = regrading.run()
    if json:
        show_json({"name": regrading.name, "rewards": regrading.count, "failed": failed, "mean": regrading.mean})
    else:
        mean = "-" if regrading.mean is None else f"{regrading.mean:.3f}"
        note(f"{regrading.count} rewards named {regrading.name}, mean {mean}, {len(failed)} failed")
        for key, why in list(failed.items())[:5]:
            note(f"{key}: {why}")
    return 1 if failed else 0


def export(  # noqa: PLR0913  one parameter an option
    run: Run,
    *,
    form: Annotated[
        Form,
        typer.Option("--as", metavar="results|openai|sharegpt|atif|tokens|preds", help="The form of the rows."),
    ] = "results",
    all_attempts: Annotated[bool, typer.Option("--all", help="All attempts, and not only the accepted ones.")] = False,
    min_reward: Annotated[float | None, typer.Option(metavar="R", help="Only trials with this reward or more.")] = None,
    end: Annotated[
        list[str] | None,
        typer.Option(metavar="END", help="Only trials that ended so, such as answered; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", metavar="NAME", help="Only of this model; may be repeated.")
    ] = None,
    scripted: Annotated[bool, typer.Option("--scripted", help="Also trials with scripted replies.")] = False,
    rewards: Rewards = None,
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write to a new file.")] = None,
    json: Json = False,
) -> int:
    """Print results or trajectories as JSON, one row a line in a fixed order; with --json as one document.

    Trajectories are of graded trials, unless --end names others. A trajectory whose text has a secret is left out, and
    what was left out is counted on standard error. See docs/trajectories.md.
    """
    from hermes_exec_agent.batch.report import export_results
    from hermes_exec_agent.cli.export import export_json

    if min_reward is not None and not math.isfinite(min_reward):
        raise UsageError(f"--min-reward {min_reward}: it should be a finite number")
    folder, state = read_state(run, rewards)
    if form == "preds":
        from hermes_exec_agent.batch.report import collect_predictions

        export_json(collect_predictions(folder, state), output)
        return 0
    if form == "results":
        if min_reward is not None or end or model or scripted:
            raise UsageError("these options choose trajectories", remedy="--as openai, sharegpt, atif or tokens")
        _write_rows(export_results(folder, state, everything=all_attempts), output, json=json)
        return 0
    if all_attempts:
        raise UsageError(f"--all excludes --as {form}", remedy="leave one of them out")
    from hermes_exec_agent.batch.trajectories.reading import Selection, TrajectoryReader

    selection = Selection(min_reward, frozenset(end or ()), frozenset(model or ()), scripted)
    with TrajectoryReader(folder, state, selection, flags.clean) as reader:
        _export_trajectories(reader, form, output, json=json)
    return 0


def _export_trajectories(reader: "TrajectoryReader", form: Form, output: str | None, *, json: bool) -> None:
    from hermes_exec_agent.batch.trajectories.atif_form import to_atif
    from hermes_exec_agent.batch.trajectories.message_forms import to_openai, to_sharegpt
    from hermes_exec_agent.batch.trajectories.token_form import TokenForm

    to_tokens = TokenForm()
    forms: dict[str, Callable[[Trajectory], Iterable[dict[str, Any]]]] = {
        "openai": to_openai, "sharegpt": to_sharegpt, "atif": to_atif, "tokens": to_tokens
    }  # fmt: skip
    convert = forms[form]
    trajectories = rows = 0

    def create_rows() -> "Iterable[dict[str, Any]]":
        nonlocal trajectories, rows
        for each in reader.read():
            trajectories += 1
            for row in reader.convert(each, convert):
                rows += 1
                yield row

    _write_rows(create_rows(), output, json=json)
    left_out, breaks = _format_counts("left out", reader.left_out), _format_counts("breaks", to_tokens.breaks)
    note(f"{rows} rows of {trajectories} trials{left_out}{breaks}")


def _format_counts(name: str, counts: "Counter[str]") -> str:
    parts = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
    return f"; {name}: {parts}" if parts else ""


def _write_rows(rows: "Iterable[Any]", output: str | None, *, json: bool) -> None:
    from hermes_exec_agent.cli.export import export_json

    if json:
        export_json(list(rows), output)
    else:
        _write_lines(rows, output)


def _write_lines(rows: Any, output: str | None) -> None:
    from json import dumps

    stream = sys.stdout
    if output is not None:
        try:
            handle = os.open(Path(output).expanduser(), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(f"{output}: {error.strerror}", remedy="a new file in a folder that exists") from error
        stream = os.fdopen(handle, "w", encoding="utf-8")
    for row in rows:
        stream.write(flags.clean(dumps(row)) + "\n")
    stream.flush()
    if output is not None:
        stream.close()
