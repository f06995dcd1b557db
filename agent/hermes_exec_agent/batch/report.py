"""Reports on a run, and the export of its results."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.run_state import RunState

_COLUMNS = ("task", "target", "model")


def group_results(state: RunState, by: tuple[str, ...] = _COLUMNS) -> list[dict[str, Any]]:
    """Return one row for each combination of ``by``: trials, mean reward, failures, tokens, cost and time."""
    groups: defaultdict[tuple[str, ...], list[dict[str, Any] | None]] = defaultdict(list)
    for trial, each in state.results():
        values = {"task": trial.task.id, "target": trial.target, "model": trial.model}
        groups[tuple(values[name] for name in by)].append(each.accepted)
    return [dict(zip(by, names, strict=True)) | _summarize(records) for names, records in groups.items()]


def _summarize(records: list[dict[str, Any] | None]) -> dict[str, Any]:
    done = [record for record in records if record is not None]
    rewards = [record["reward"] for record in done if record["reward"] is not None]
    usages = [record["usage"] for record in done if record["usage"]]
    costs = [usage["cost"] for usage in usages if usage["cost"] is not None]
    seconds = [record["seconds"] for record in done if record["seconds"] is not None]
    return {
        "trials": len(records),
        "done": len(done),
        "graded": len(rewards),
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "failures": dict(Counter(record["failure"] or record["state"] for record in done if not record["reward"])),
        "steps": sum(record["steps"] for record in done),
        "tokens": sum(usage["prompt"] + usage["completion"] for usage in usages),
        "cost": sum(costs) if costs else None,
        "seconds": round(sum(seconds), 3),
    }


def export_results(run: RunFolder, state: RunState, *, everything: bool = False) -> Iterator[dict[str, Any]]:
    """Return the accepted result of each trial in the order of trials, with the task's metadata.

    Args:
        run: its folder.
        state: of the run.
        everything: all attempts, and not only the accepted ones.
    """
    for trial, each in state.results():
        extra = {"instruction": trial.task.instruction, "metadata": trial.task.metadata}
        if everything:
            for number in range(1, each.claimed + 1):
                record = run.read_result(trial.key, number)
                if record is not None:
                    yield record | extra
        elif each.accepted is not None:
            yield _strip_event(each.accepted) | extra


def _strip_event(record: dict[str, Any]) -> dict[str, Any]:
    """Return a result as its file has it; that of a log is an event."""
    return {name: value for name, value in record.items() if name not in ("event", "at")}


def collect_predictions(run: RunFolder, state: RunState) -> dict[str, dict[str, str]]:
    """Return the patches of rows of SWE-bench, as the official harness reads them: the first sample of each row."""
    found: dict[str, dict[str, str]] = {}
    for trial, each in state.results():
        if trial.task.swebench is None or each.accepted is None or trial.task.id in found:
            continue
        with contextlib.suppress(OSError):
            found[trial.task.id] = {
                "instance_id": trial.task.id,
                "model_name_or_path": trial.model or "none",
                "model_patch": run.patch_path(trial.key, each.accepted["attempt"]).read_text("utf-8", "replace"),
            }
    return found
