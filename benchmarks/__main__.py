"""``./dev bench``: run the benchmarks, print their table, and on request put it into the README."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import (
    agent,
    apptainer,
    containers,
    daytona,
    files,
    latency,
    modal,
    opening,
    orchestrator,
    sandbox,
    scale,
    ssh,
    streaming,
)
from benchmarks.figures import Figure, as_json, table
from benchmarks.peers.serve import PEERS, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

_README = Path(__file__).parent.parent / "README.md"
_PLACE = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- end of benchmarks -->)", re.DOTALL)


def _peers(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as home:
        peers = [Peer(name, home) for name in PEERS]
        try:
            return latency.against_peers(peers, rounds)
        finally:
            for peer in peers:
                peer.close()


GROUPS: dict[str, Callable[[int], list[Figure]]] = {
    "latency": lambda part: latency.figures(400 // part),
    "peers": lambda part: _peers(60 // part),
    "opening": lambda part: opening.figures(40 // part),
    "streaming": lambda part: streaming.figures(3, (1 << 30) // part),
    "files": lambda part: files.figures(3, (200 << 20) // part, 2000 // part),
    "docker": lambda part: containers.figures(400 // part, (1 << 30) // part),
    "apptainer": lambda part: apptainer.figures(400 // part),
    "ssh": lambda part: ssh.figures(400 // part, (200 << 20) // part, 2000 // part),
    "modal": lambda part: modal.figures(200 // part, 20_000_000),
    "daytona": lambda part: daytona.figures(200 // part),
    "sandbox": lambda part: sandbox.figures(40 // part),
    "scale": lambda part: scale.figures(1000 // part, 10_000 // part),
    "orchestrator": lambda part: orchestrator.figures(100 // part),
    "agent": lambda part: agent.figures(200 // part),
    "fleet": lambda _: orchestrator.in_containers(),
}
"""What is measured, given by how much less than the whole."""


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"{', '.join(GROUPS)}; all if left out")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds and sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures for machines")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    chosen = parser.parse_args()
    part = 10 if chosen.quick else 1
    if unknown := set(chosen.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    figures: list[Figure] = []
    for name, run in GROUPS.items():
        if not chosen.groups or name in chosen.groups:
            print(f"{name} …", file=sys.stderr, flush=True)
            figures += run(part)
    text = table(figures)
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; medians."
    print(f"{text}\n\n{machine}")
    if chosen.json:
        chosen.json.write_text(as_json(figures) + "\n")
    if chosen.readme:
        readme = _README.read_text()
        _README.write_text(_PLACE.sub(lambda found: f"{found[1]}{text}\n\n{machine}\n{found[2]}", readme))
    return 0


if __name__ == "__main__":
    sys.exit(main())
