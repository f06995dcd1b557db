"""What there is to measure, by name; cheap to import, as a group's module is imported by who measures it."""

from __future__ import annotations

import importlib
import tempfile
from typing import TYPE_CHECKING

from benchmarks.peers.serve import PEERS, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from benchmarks.figures import Figure, Table


def _of(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def _peers(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as home:
        peers = [Peer(name, home) for name in PEERS]
        try:
            figures: list[Figure] = _of("latency").against_peers(peers, rounds)
        finally:
            for peer in peers:
                peer.close()
    return figures


GROUPS: dict[str, Callable[[int], Sequence[Figure | Table]]] = {
    "latency": lambda part: _of("latency").figures(400 // part),
    "peers": lambda part: _peers(60 // part),
    "opening": lambda part: _of("opening").figures(40 // part),
    "streaming": lambda part: _of("streaming").figures(3, (1 << 30) // part),
    "files": lambda part: _of("files").figures(3, (200 << 20) // part, 2000 // part),
    "docker": lambda part: _of("containers").figures(400 // part, (1 << 30) // part),
    "apptainer": lambda part: _of("apptainer").figures(400 // part),
    "ssh": lambda part: _of("ssh").figures(400 // part, (200 << 20) // part, 2000 // part),
    "modal": lambda part: _of("modal").figures(200 // part, 20_000_000),
    "daytona": lambda part: _of("daytona").figures(200 // part),
    "sandbox": lambda part: _of("sandbox").figures(40 // part),
    "skills": lambda part: _of("skills").figures(60 // part),
    "scale": lambda part: _of("scale").figures(1000 // part, 10_000 // part),
    "orchestrator": lambda part: _of("orchestrator").figures(100 // part),
    "agent": lambda part: _of("agent").figures(200 // part),
    "starting": lambda part: _of("starting").figures(30 // part),
    "gateway": lambda part: _of("gateway").figures(200 // part, 500 // part),
    "memory": lambda part: _of("memory").figures(part),
    "learning": lambda part: _of("learning").figures(part),
    "reviews": lambda part: _of("reviews").figures(200 // part),
    "recall": lambda part: _of("skill_recall").figures(part),
    "mcp": lambda part: _of("mcp_clients").figures(200 // part),
    "pools": lambda _: _of("orchestrator").in_containers(),
    "fleet": lambda part: _of("fleet").figures(part),
    "bridges": lambda part: _of("bridges").figures(60 // part),
}
"""What is measured, given by how much less than the whole."""


def measured(name: str, part: int) -> Sequence[Figure | Table]:
    """Measure a group."""
    return GROUPS[name](part)
