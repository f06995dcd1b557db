"""Judge the report of the attempts, outside of the sandbox: each rule held or is broken, or the proof is invalid.

A report without its first and last line, with a missing attempt, or with a failed control attempt proves nothing: it is
*invalid*, never *held*.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_policies.canaries.expected import CONTROL_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hermes_exec_policies.canaries.expected import Canary

_LONGEST_LINE = 4096
_MALFORMED = "the suite's report has a malformed line"
_OUTCOMES = frozenset({"worked", "errno", "absent", "signal", "hung", "error"})


class Verdict(StrEnum):
    """The verdict on one attempt or on all of them."""

    HELD = "held"
    BROKEN = "broken"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    """One attempt with its outcome and verdict."""

    name: str
    rule: str
    layer: str
    verdict: Verdict
    ended: str
    """The outcome in words."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The verdicts on all attempts."""

    judged: tuple[AttemptVerdict, ...]
    invalid: str = ""
    """Why the proof is invalid; else empty."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on all attempts: broken before invalid, and held only if each held."""
        if any(each.verdict is Verdict.BROKEN for each in self.judged):
            return Verdict.BROKEN
        if self.invalid or not self.judged or any(each.verdict is Verdict.INVALID for each in self.judged):
            return Verdict.INVALID
        return Verdict.HELD

    @property
    def broken_rules(self) -> tuple[str, ...]:
        """The distinct rules that do not hold."""
        return tuple(dict.fromkeys(each.rule for each in self.judged if each.verdict is not Verdict.HELD))

    @property
    def layers(self) -> tuple[str, ...]:
        """The mechanisms that are proven to be active, because only they stop an attempt in that way."""
        return tuple(sorted({each.layer for each in self.judged if each.layer and each.verdict is Verdict.HELD}))

    def join(self, other: Proof) -> Proof:
        """Combine this proof with that of another probe sandbox."""
        return Proof((*self.judged, *other.judged), self.invalid or other.invalid)

    def facts(self) -> dict[str, Any]:
        """The proof as JSON values."""
        return {
            "verdict": self.verdict.value,
            "invalid": self.invalid,
            "broken": list(self.broken_rules),
            "layers": list(self.layers),
            "attempts": [asdict(each) for each in self.judged],
        }


def judge(report: bytes, canaries: Sequence[Canary], nonce: str) -> Proof:
    """Compare the report of a suite with the expected outcome of each attempt."""
    lines, why = _lines(report)
    outcomes = {str(line["name"]): line for line in lines if "name" in line}
    if not why and not (lines and lines[0].get("started") == nonce):
        why = "the suite did not start"
    if not why and lines[-1].get("ended") != nonce:
        begun = [str(line["begins"]) for line in lines if "begins" in line]
        why = f"the suite broke off, in {begun[-1]}" if begun else "the suite broke off"
    hung = [name for name, line in outcomes.items() if line.get("outcome") == "hung"]
    if not why and hung:
        why = f"too slow: no end or answer in time of {', '.join(hung)}"
    failed = [name for name in CONTROL_ATTEMPTS if outcomes.get(name, {}).get("outcome") != "worked"]
    if not why and failed:
        reasons = [f"{name} ({_describe(outcomes.get(name, {}))})" for name in failed]
        why = f"required operations failed: {', '.join(reasons)}"
    return Proof(tuple(_judge_attempt(canary, outcomes.get(canary.name, {})) for canary in canaries), why)


def _lines(report: bytes) -> tuple[list[Mapping[str, Any]], str]:
    lines: list[Mapping[str, Any]] = []
    for line in report.split(b"\n")[:-1]:
        if len(line) > _LONGEST_LINE:
            return lines, _MALFORMED
        try:
            read: object = json.loads(line)
        except ValueError:
            return lines, _MALFORMED
        if not isinstance(read, dict):
            return lines, _MALFORMED
        lines.append(cast("dict[str, Any]", read))
    return lines, ""


def _judge_attempt(canary: Canary, outcome: Mapping[str, Any]) -> AttemptVerdict:
    verdict, ended = _verdict(canary, outcome), _describe(outcome)
    if verdict is Verdict.BROKEN and canary.errnos and outcome.get("outcome") == "errno":
        ended += f", expected {_format_errnos(canary.errnos)}"
    return AttemptVerdict(canary.name, canary.rule, canary.layer, verdict, ended)


def _format_errnos(numbers: Iterable[int]) -> str:
    return " or ".join(sorted(errno.errorcode.get(number, str(number)) for number in numbers))


def _verdict(canary: Canary, outcome: Mapping[str, Any]) -> Verdict:
    kind = outcome.get("outcome")
    if kind not in _OUTCOMES or kind in {"hung", "error"}:
        return Verdict.INVALID
    held = {
        "worked": False,
        "absent": canary.absent,
        "errno": outcome.get("errno") in canary.errnos,
        "signal": outcome.get("signal") in canary.signals,
    }
    return Verdict.HELD if held[str(kind)] else Verdict.BROKEN


def _describe(outcome: Mapping[str, Any]) -> str:
    match outcome.get("outcome"):
        case None:
            return "not reported"
        case "errno":
            number = outcome.get("errno")
            if isinstance(number, int) and number in errno.errorcode:
                return f"{errno.errorcode[number]} ({os.strerror(number)})"
            return f"error {number!r}"
        case "signal":
            return f"killed by signal {outcome.get('signal')!r}"
        case kind:
            detail = str(outcome.get("detail", ""))[:200]
            return f"{kind}: {detail}" if detail else str(kind)
