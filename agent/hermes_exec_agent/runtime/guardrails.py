"""Detect loops in a model's calls.

Three signs are counted in a turn: the same call failing the same way, one tool failing repeatedly, and the same call
returning the same result. Each first causes a warning that the model reads, and finally a stop in unattended
conversations. A new change resets the counts of identical calls, so that fixing and retesting does not count as a loop,
while writing the same file and running the same tests does.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_exec.config.settings import GuardrailSettings
    from hermes_exec_agent.tools.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Threshold:
    """Occurrences until a warning and until a stop; 0 means never."""

    warn: int
    stop: int


@dataclass(frozen=True, slots=True)
class Guardrails:
    """Thresholds of warnings and stops."""

    identical_failures: Threshold = Threshold(2, 5)
    """Of one call with the same arguments."""
    tool_failures: Threshold = Threshold(3, 8)
    """Of one tool in a row, with any arguments."""
    same_results: Threshold = Threshold(2, 5)
    """Of one call that changes nothing and returns the same result."""
    same_effects: Threshold = Threshold(3, 6)
    """Of one call that may change something and returns the same result."""

    @classmethod
    def of_settings(cls, settings: GuardrailSettings) -> Guardrails:
        """Return the configured thresholds."""
        return cls(
            identical_failures=Threshold(*settings.identical_failures),
            tool_failures=Threshold(*settings.tool_failures),
            same_results=Threshold(*settings.same_results),
            same_effects=Threshold(*settings.same_effects),
        )


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call and its result."""

    name: str
    arguments: str
    envelope: Envelope
    changes: bool


@dataclass(frozen=True, slots=True)
class GuardrailAction:
    """The guardrails' reaction to a call."""

    reason: str = ""
    content: str = ""
    """A message for the model; empty if there is none."""
    stop: bool = False


class GuardrailMonitor:
    """Watches the calls of one turn."""

    def __init__(self, guardrails: Guardrails, *, stops: bool, patient: frozenset[str]) -> None:
        """``stops``: whether it may end the turn. ``patient``: tools that may return the same result without limit."""
        self._rails = guardrails
        self._stops = stops
        self._patient = patient
        self._same: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._done: set[str] = set()

    def observe(self, seen: ObservedCall) -> GuardrailAction:
        """Count a call."""
        call = _digest(seen.name, _canonical(seen.arguments))
        failed = not seen.envelope.ok or seen.envelope.exit_code not in (None, 0)
        verdicts: list[GuardrailAction] = []
        if failed:
            self._failed[seen.name] += 1
            verdicts.append(self._judge(
                "tool_failures", self._rails.tool_failures, self._failed[seen.name],
                f"{seen.name} failed {{}} times in a row. Read what it said, and try another way.",
            ))  # fmt: skip
        else:
            self._failed[seen.name] = 0
            if seen.changes and call not in self._done and seen.name not in self._patient:
                self._same.clear()
            self._done.add(call)
        if seen.name not in self._patient:
            verdicts.append(self._again(seen, call, failed=failed))
        return max(verdicts, key=lambda verdict: (verdict.stop, bool(verdict.content)), default=GuardrailAction())

    def _again(self, seen: ObservedCall, call: str, *, failed: bool) -> GuardrailAction:
        # The duration differs each time, and means nothing.
        key = _digest(call, replace(seen.envelope, duration_s=0.0, output_ref="").text())
        self._same[key] += 1
        if failed:
            text = f"The same call of {seen.name} failed in the same way {{}} times. To repeat it changes nothing."
            return self._judge("identical_failures", self._rails.identical_failures, self._same[key], text)
        text = f"The same call of {seen.name} gave the same result {{}} times. Use it, or do something else."
        if seen.changes:
            return self._judge("same_effects", self._rails.same_effects, self._same[key], text)
        return self._judge("same_results", self._rails.same_results, self._same[key], text)

    def _judge(self, reason: str, threshold: Threshold, count: int, text: str) -> GuardrailAction:
        if self._stops and threshold.stop and count >= threshold.stop:
            return GuardrailAction(reason, text.format(count), stop=True)
        if threshold.warn and count >= threshold.warn:
            return GuardrailAction(reason, text.format(count))
        return GuardrailAction()


def _canonical(arguments: str) -> str:
    """Return arguments without meaningless differences."""
    try:
        found: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return json.dumps(found, sort_keys=True)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
