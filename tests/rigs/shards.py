"""How the suite is spread over the workers of pytest-xdist: by shards, each with the tests of one kind of engine.

A unit is what shares fixtures: the tests of a class, or the functions of a module. A worker takes the longest unit that
is left of its shard, so that few workers start the same engine, and then those of the shard with the most work left.
``tests/durations.json`` has the seconds of the longest units; ``./dev generate --durations`` writes it after a run.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdist.workermanage import WorkerController

SHARDS = ("core", "containers", "clouds", "gate", "agent")
_FOLDERS = {
    "containers": ("compose", "deploy", "docker", "sandbox", "singularity", "slurm", "soak"),
    "clouds": ("daytona", "live", "modal", "shared"),
    "gate": ("build", "gate", "policies", "skills"),
    "agent": ("batch", "chat", "harm", "http", "learning", "memory", "models", "pool", "runtime", "tools", "web"),
}
"""The folders of each shard; all others are ``core``."""
_MODULES = {
    "containers": ("docker", "podman", "singularity", "slurm", "apptainer", "chain_ssh"),
    "clouds": ("modal", "daytona"),
}
"""A module of ``core`` or ``conformance`` with such a part in its name belongs to this shard."""
_APART = re.compile(r"packaging/test_extras|gate/test_gate_suites")
"""Modules whose tests share nothing that is dear, so that each is a unit."""
_ROOT = Path(__file__).resolve().parents[2]
MEASURED = _ROOT / ".cache" / "durations.json"
KNOWN = _ROOT / "tests" / "durations.json"
ONE_IN = "one_in"
"""The property of a test that stands for so many: the others of its module are left out."""
_USUAL_S = 0.2
"""A test of a unit whose duration is not known."""


def shard_of(path: str) -> str:
    """Return the shard of a test module, by its path below the root."""
    parts = path.split("/")
    folder = parts[1] if len(parts) > 2 else ""
    for shard, folders in _FOLDERS.items():
        if folder in folders:
            return shard
    for shard, names in _MODULES.items():
        if any(name in parts[-1] for name in names):
            return shard
    return "core"


def unit_of(nodeid: str) -> str:
    """Return the unit of a test: its class, or its module."""
    if _APART.search(nodeid):
        return nodeid
    return nodeid.partition("[")[0].rpartition("::")[0]


@cache
def durations() -> dict[str, float]:
    """The seconds of the longest units, as they are known in this checkout."""
    try:
        known: dict[str, float] = json.loads(KNOWN.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return known


class ShardScheduling(LoadScopeScheduling):
    """Gives each worker whole units: first those of its shard, the longest first."""

    def __init__(self, config: pytest.Config, log: object = None, one_in: Callable[[str], int] = lambda _: 1) -> None:
        super().__init__(config, log)
        self._one_in = one_in
        """Of how many tests of a module one is taken in this run."""
        self._weights: dict[str, float] = {}
        self._indices: dict[WorkerController, dict[str, int]] = {}
        self._shards: dict[WorkerController, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        unit = self._choose(node)
        tests = self.workqueue.pop(unit)
        self.assigned_work.setdefault(node, {})[unit] = tests
        if node not in self._indices:
            self._indices[node] = {nodeid: index for index, nodeid in enumerate(self.registered_collections[node])}
        node.send_runtest_some([self._indices[node][nodeid] for nodeid, completed in tests.items() if not completed])

    def _choose(self, node: WorkerController) -> str:
        queues: defaultdict[str, list[str]] = defaultdict(list)
        for unit in self.workqueue:
            queues[shard_of(unit.partition("::")[0])].append(unit)
        shard = self._shards.get(node, "")
        if shard not in queues:
            workers = Counter(each for other, each in self._shards.items() if other is not node)
            shard = max(queues, key=lambda each: sum(map(self._weigh, queues[each])) / (workers[each] + 1))
            self._shards[node] = shard
        return max(queues[shard], key=self._weigh)

    def _weigh(self, unit: str) -> float:
        if unit not in self._weights:
            known = durations().get(unit, 0.0) / self._one_in(unit.partition("::")[0])
            self._weights[unit] = known or _USUAL_S * len(self.workqueue[unit])
        return self._weights[unit]


class Stopwatch:
    """A plugin of the process that controls the session: keeps the seconds of each unit for ``./dev generate``."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a phase of a test, for those that are left out, too."""
        tests = dict(report.user_properties).get(ONE_IN, 1)
        assert isinstance(tests, (int, float))
        self._seconds[unit_of(report.nodeid)] += report.duration * tests

    def pytest_sessionfinish(self) -> None:
        """Write them."""
        MEASURED.parent.mkdir(exist_ok=True)
        rounded = {unit: round(seconds, 1) for unit, seconds in sorted(self._seconds.items())}
        MEASURED.write_text(json.dumps(rounded, indent=1), encoding="utf-8")


def configure(config: pytest.Config) -> None:
    """Measure the units of a session with workers.

    Raises:
        pytest.UsageError: there is no such shard.
    """
    shard = os.environ.get("HERMES_DEV_SHARD")
    if shard and shard not in SHARDS:
        raise pytest.UsageError(f"there is no shard {shard!r}; they are {', '.join(SHARDS)}")
    if config.getoption("dist", "no") == "loadscope" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch())
