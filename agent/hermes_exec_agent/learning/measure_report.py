"""The report of a measurement: both success rates, their difference with its interval, and what the samples took."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.learning.differences import estimate_difference
from hermes_exec_agent.learning.measure import ARMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.learning.measure import Measurement, Sample


def create_report(measurement: Measurement) -> dict[str, Any]:
    """Return the report, also of an incomplete measurement, as JSON values.

    Both arms and the difference are those of the pairs of which both samples were graded.
    """
    pairs = _find_pairs(measurement.samples)
    results = [(one.result == "succeeded", other.result == "succeeded") for one, other in pairs]
    plan = measurement.plan
    return {
        "measurement": measurement.id,
        "subject": asdict(plan.subject),
        "model": plan.model,
        "target": plan.target,
        "tasks": len(plan.tasks),
        "rounds": plan.rounds,
        "samples": len(measurement.samples),
        "missing": len(measurement.list_missing()),
        "with": _summarize([one for one, _ in pairs]),
        "without": _summarize([other for _, other in pairs]),
        "difference": estimate_difference(results).facts(),
        "ungraded": [
            {"task": each.task, "round": each.round, "arm": each.arm, "detail": each.detail}
            for each in measurement.samples
            if each.result == "ungraded"
        ],
        "conversations": str(measurement.conversations),
    }


def _find_pairs(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    graded = {(each.task, each.round, each.arm): each for each in samples if each.result != "ungraded"}
    keys = dict.fromkeys((task, number) for task, number, _ in graded)
    found = [tuple(graded.get((*key, arm)) for arm in ARMS) for key in keys]
    return [(one, other) for one, other in found if one is not None and other is not None]


def _summarize(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the success rate of an arm, and the mean of what a sample took; None where nothing is known."""
    number = len(samples)
    succeeded = sum(each.result == "succeeded" for each in samples)
    costs = [each.cost for each in samples if each.cost is not None]

    def average(total: float) -> float | None:
        return round(total / number, 6) if number else None

    return {
        "graded": number,
        "succeeded": succeeded,
        "rate": average(succeeded),
        "calls": average(sum(each.calls for each in samples)),
        "tokens": average(sum(each.tokens for each in samples)),
        "seconds": average(sum(each.seconds for each in samples)),
        "cost": average(sum(costs)) if costs else None,
        "loaded": sum(each.loaded for each in samples),
    }


def list_rows(report: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the table of both arms, without its heads."""
    return [[arm, *_describe_arm(report[arm])] for arm in ARMS]


HEADS = ("", "SUCCEEDED", "RATE", "CALLS", "TOKENS", "SECONDS", "COST", "USED IT")


def _describe_arm(arm: dict[str, Any]) -> list[str]:
    rate, calls, tokens, seconds, cost = (arm[key] for key in ("rate", "calls", "tokens", "seconds", "cost"))
    return [
        f"{arm['succeeded']} of {arm['graded']}",
        "-" if rate is None else f"{100 * rate:.0f} %",
        *("-" if each is None else f"{each:.1f}" for each in (calls, tokens, seconds)),
        "-" if cost is None else f"${cost:.4f}",
        f"{arm['loaded']} of {arm['graded']}",
    ]


def describe_difference(report: dict[str, Any]) -> str:
    """Return the difference in one line."""
    found = report["difference"]
    if not found["pairs"]:
        return "difference: unknown, as no pair of samples was graded"
    value, low, high = (100 * found[key] for key in ("value", "low", "high"))
    verdict = "more" if low > 0 else "less" if high < 0 else "no difference is shown"
    pairs = f"{found['pairs']} pair{'s' if found['pairs'] > 1 else ''}"
    words = verdict if low <= 0 <= high else f"it succeeds {verdict} often"
    return f"difference: {value:+.1f} points, 95 % interval {low:+.1f} to {high:+.1f} ({pairs}): {words}"
