"""How often a candidate is judged, and when it is enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, Refused
from hermes_exec_policies.gate.verdict import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_policies.gate.verdict import Report

MAX_RETRIES = 3
"""Repairs after the first attempt."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate, and why it was not accepted, in the words that a model may see."""

    number: int
    outcome: str
    """``functional``, ``security``, or ``incomplete``."""
    reasons: tuple[str, ...]


class NotRegistered(HermesError):
    """A skill did not pass the gate, and is not tried again; nothing was registered. Carries every attempt."""

    state = "nothing was registered"

    def __init__(self, name: str, why: str, attempts: tuple[Attempt, ...], *, remedy: str = "") -> None:
        self.attempts = attempts
        self.security = bool(attempts) and attempts[-1].outcome == Kind.SECURITY
        tried = f" after {len(attempts)} attempts" if len(attempts) > 1 else ""
        super().__init__(f"{name} was not registered{tried}: {why}", remedy=remedy)


class Rejected(Refused):
    """A candidate did not pass the gate, and may be mended; nothing was registered."""

    state = "nothing was registered"

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(f"{name} was not accepted: {'; '.join(reasons)}", remedy="mend that, and send all of it again")


@dataclass(slots=True)
class Attempts:
    """The attempts at one skill. Once it is enough, it is so for the whole conversation."""

    name: str
    made: list[Attempt] = field(default_factory=list[Attempt])
    over: NotRegistered | None = None
    _diagnosis: frozenset[tuple[str, str]] = frozenset()

    def check(self) -> None:
        """See that there may be another one.

        Raises:
            NotRegistered: there may not.
        """
        if self.over is not None:
            raise self.over

    def failed(self, report: Report) -> Attempt:
        """Count one that was not accepted; gives it, to be mended.

        Raises:
            NotRegistered: it was the last one.
        """
        diagnosis = frozenset((each.code, each.model) for each in report.findings if each.kind is Kind.FUNCTIONAL)
        wrong = tuple(dict.fromkeys(each.model for each in report.findings if each.kind is Kind.FUNCTIONAL))
        reasons = tuple(report.reasons[:1]) if report.security else wrong or ("it could not be judged to the end",)
        return self._count(report.outcome, reasons, diagnosis)

    def unreadable(self, why: str) -> Attempt:
        """Count a reply that held no candidate at all.

        Raises:
            NotRegistered: it was the last one.
        """
        return self._count(str(Kind.FUNCTIONAL), (why,), frozenset({("draft.format", why)}))

    def _count(self, outcome: str, reasons: tuple[str, ...], diagnosis: frozenset[tuple[str, str]]) -> Attempt:
        attempt = Attempt(len(self.made) + 1, outcome, reasons)
        self.made.append(attempt)
        again, self._diagnosis = bool(diagnosis) and diagnosis == self._diagnosis, diagnosis
        why, remedy = "; ".join(reasons), ""
        if outcome == Kind.SECURITY:
            over = True
        elif again:
            over, why, remedy = True, f"the same as before: {why}", "do it in another way, or ask the person"
        else:
            over, remedy = len(self.made) > MAX_RETRIES, "a simpler task, or ask the person"
        if over:
            self.over = NotRegistered(self.name, why, tuple(self.made), remedy=remedy)
            raise self.over
        return attempt

    def begin(self) -> None:
        """A new round, after one that was registered."""
        self.made, self._diagnosis = [], frozenset()
