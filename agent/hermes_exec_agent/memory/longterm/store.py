"""The interface of stores of memories, and their errors.

A store may hold the memories of several event logs. Each row has the id of its log, and each query names one. The store
records, for each log, the positions up to which its events were indexed: one for memories, and one for turns, which are
many, so that no memory waits for them. Rows and their position change in one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from hermes_exec.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec_agent.memory.longterm.memory import Kind, Memory

REEMBED = "hermes-exec memory reembed"
Part: TypeAlias = Literal["memories", "turns"]
PARTS: tuple[Part, ...] = ("memories", "turns")


class StoreUnavailable(HermesError):
    """The store did not answer; nothing was changed, and the event log keeps the changes that are due."""


class AnotherEmbedder(ConfigError):
    """The store has vectors of another embedder, which must not be mixed with those of this one."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A change of the rows of one log, which happens completely or not at all."""

    after: int
    """The position that the store must have."""
    upto: int
    """The position afterwards."""
    memories: Sequence[Memory]
    vectors: NDArray[np.float32]
    """One row for each memory."""
    keep: Mapping[Kind, frozenset[str]] = field(default_factory=dict["Kind", "frozenset[str]"])
    """Rows of these kinds with other sources are removed."""
    part: Part = "memories"
    """The position that is meant."""


class MemoryStore(Protocol):
    """A store. Threads and programs may share it; calls block.

    Every method raises `StoreUnavailable` if the store does not answer.
    """

    def prepare(self, embedder: str, dimension: int) -> None:
        """Create or migrate the schema, and record the embedder.

        Raises:
            AnotherEmbedder: another one is recorded.
        """
        ...

    def adopt(self, embedder: str, dimension: int) -> None:
        """Record another embedder; rows with vectors of other ones are found no more until they are replaced."""
        ...

    def position(self, log: str, part: Part = "memories") -> int:
        """Return a position of a log, 0 at first."""
        ...

    def write(self, log: str, batch: Batch) -> bool:
        """Apply a batch; return False, with nothing changed, if the position is another one than expected.

        Raises:
            AnotherEmbedder: another program recorded another embedder.
        """
        ...

    def nearest(
        self, log: str, vector: NDArray[np.float32], kinds: Sequence[Kind], count: int
    ) -> list[tuple[Memory, float]]:
        """Return up to ``count`` memories of each kind with their cosines, the nearest of a kind first."""
        ...

    def texts(self, log: str, kind: Kind) -> dict[str, str]:
        """Return the texts of a kind by their sources."""
        ...

    def count(self, log: str = "") -> dict[Kind, int]:
        """Count the rows of each kind; those of all logs without ``log``."""
        ...

    def list_stale(self, limit: int) -> list[tuple[int, str]]:
        """Return the numbers and texts of rows with vectors of another embedder than the recorded one."""
        ...

    def count_stale(self) -> int:
        """Count these rows."""
        ...

    def replace_vectors(self, rows: Sequence[tuple[int, str]], vectors: NDArray[np.float32]) -> None:
        """Give these rows new vectors; a row whose text changed meanwhile is left alone."""
        ...

    def forget(self, log: str) -> None:
        """Remove all rows of a log, and its positions."""
        ...

    def maintain(self) -> None:
        """Create the indexes that the number of rows requires."""
        ...

    def close(self) -> None:
        """Close connections. A later call opens them again."""
        ...


def name_position(log: str, part: Part) -> str:
    """Return the key of a position of a log."""
    return log if part == "memories" else f"{log}/{part}"


def another_embedder(recorded: tuple[str, int], wanted: tuple[str, int]) -> AnotherEmbedder:
    """Return the error for a store with vectors of another embedder."""
    return AnotherEmbedder(
        f"long-term memory: it has vectors of {recorded[0]} ({recorded[1]} numbers), and {wanted[0]} ({wanted[1]}) is"
        " configured; they are not mixed",
        remedy=REEMBED,
    )
