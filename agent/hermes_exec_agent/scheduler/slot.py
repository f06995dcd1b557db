"""The row of a slot, as it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import sqlite3

SlotState = Literal["claimed", "running", "completed", "failed", "skipped", "missed", "unknown"]
Cause = Literal["schedule", "catch-up", "person", "clock"]
"""The schedule; a run after missed slots; a person's command; a change of the clock."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A row of the history."""

    id: int
    job: int
    era: int
    slot: int
    """The moment, or the first one of ``count``."""
    last: int
    count: int
    cause: Cause
    state: SlotState
    reason: str
    note: str
    owner: str
    lease: float
    stop: str
    """Why its run is to be ended."""
    recorded: float
    began: float | None
    ended: float | None
    exit_code: int | None
    conversation: str
    cost: float | None
    text: str | None
    """The answer or the output; None without one, or when it is not kept any more."""

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> Slot:
        """Return the slot of a row."""
        return cls(**dict(row))
