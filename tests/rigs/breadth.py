"""How much the suite does. ``HERMES_DEV_SUITE`` names the breadth, and ``HERMES_DEV_SEED`` the samples that it takes.

``plain``
    One module in ``OF_MODULES`` of each folder is taken, no engine is started, tests that are marked ``thorough`` are
    left out, and samples are taken of the rest.
``ci``
    Every engine and every module, without repeats: behaviours that only exercise the guest run on the targets of
    ``_GUEST_COLUMNS``, targets that combine others take samples of their behaviours, expensive tests take samples of
    their parameters, and long modules take samples of their tests.
``all``
    Everything but ``soak``. A run of named tests has this breadth.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from hermes_exec.testing.behaviours import EXERCISES
from tests.rigs.shards import ONE_IN, durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")
BREADTH = os.environ.get("HERMES_DEV_SUITE", "all")
SEED = int(os.environ.get("HERMES_DEV_SEED", "0"))
WHOLE = BREADTH != "plain"
"""Whether engines are started and the long tests run; ``./dev test`` alone has to end within a few minutes."""
IN_FULL = BREADTH == "all"
"""Whether a long test does all that it can, and not a sample of it."""

OF_MODULES = 1 if "CI" in os.environ else 5
"""Of the modules of a folder, the plain run of a person collects one in so many, and those of ``_EACH_TIME``."""
_EACH_TIME = frozenset(
    {
        "test_circles.py",
        "test_cli_docs.py",
        "test_config_docs.py",
        "test_hygiene.py",
        "test_local.py",
        "test_wording.py",
    }
)
"""Modules that the plain run takes with each seed: rules of the whole code, generated pages, and all behaviours."""
_OF_PARAMETERS = 6
"""Of the parameters of a test, one in so many is tried."""
_OF_COLUMNS = 10
"""Of a column of the conformance suite that is not this machine, one behaviour in so many is shown."""
_OF_TESTS = 8
"""Of the tests of a module that is sampled, one in so many is run."""
_SAMPLED_FOLDERS = frozenset(
    {
        "bubblewrap", "build", "chat", "cli", "daytona", "deploy", "faults", "files", "forward", "gate", "http", "jobs",
        "learning", "limits", "longterm", "memory", "modal", "models", "observe", "policies", "pool", "properties",
        "pty", "runtime", "sandbox", "shared", "shell_transport", "skills", "sync", "tools", "web",
    }
)  # fmt: skip
_SAMPLED_MODULES = frozenset(
    {"test_breadth.py", "test_dev_command.py", "test_plugins.py", "test_unsteady.py", "test_wheel.py"}
)
"""The folders and modules of which the plain run takes one test in ``_OF_TESTS``."""
_GUEST_COLUMNS = frozenset(
    {"test_local.py", "test_local_polled.py", "test_local_shells.py", "test_guest_pythons.py", "test_ssh.py"}
)
"""The modules of the conformance suite that run the behaviours of the guest: this machine, with each kind of watching
and shell and with the oldest Python, and one far target. On other targets the guest is the same process."""
_WITHOUT_GUEST = re.compile(r"Plain|WithoutPython")
"""Classes of the conformance suite whose targets run no guest, so that these behaviours exercise the backend."""
_GUEST_ALONE = frozenset({"TestOldestPython"})
"""Classes of which the other behaviours are repeats."""
_SAMPLED_COLUMNS = {"TestBusybox": 4}
"""Classes that repeat what another column of the same kind shows: one in so many behaviours is shown."""
_MAIN_COLUMNS = _GUEST_COLUMNS | {
    f"test_{name}.py" for name in ("docker", "singularity", "modal", "daytona", "slurm", "bubblewrap", "local_plain")
}
"""The modules of the conformance suite with one target of each kind. The others combine those, or repeat one over
another program: in CI, one in ``_OF_REPEATS`` of their behaviours is shown."""
_OF_REPEATS = 10
_DEAR_FOLDERS = frozenset(
    {
        "bubblewrap", "cell", "chat", "cli", "conformance", "daytona", "deploy", "docker", "faults", "files", "gate",
        "jobs", "limits", "modal", "pool", "shared", "shell_transport", "singularity", "skills", "slurm", "ssh",
    }
)  # fmt: skip
_DEAR_MODULES = frozenset({"test_extras.py"})
"""The folders and modules whose tests start engines or programs: in CI, one in ``_OF_VARIANTS`` of the parameters of
each test is tried."""
_OF_VARIANTS = 5
_LONGEST_S = 4.0 if WHOLE else 0.7
_LONGEST_COLUMN_S = 15.0
"""Seconds of a worker that a module, or one of the conformance suite, takes, by ``tests/durations.json``; of a longer
one, so many tests are left out that this remains."""
_NOT_SHORTENED = _GUEST_COLUMNS | _DEAR_MODULES if WHOLE else frozenset[str]()
"""Modules that CI takes as they are, however long: each promise on this machine, and each extra."""

thorough = pytest.mark.skipif(not WHOLE, reason="takes long. Try: ./dev test --provision, or name this test")
"""Marks what the plain run leaves out."""


def leave_out(why: str) -> None:
    """Leave the calling module out of the plain run; called in its body, it spares the collecting, too."""
    if not WHOLE:
        pytest.skip(f"{why}. Try: ./dev test --provision, or name this test", allow_module_level=True)


def is_left_out(module: Path) -> bool:
    """Whether the plain run collects other modules of the folder than this one."""
    return not WHOLE and module.name not in _EACH_TIME and module.name not in choose_modules(module.parent)


@cache
def choose_modules(folder: Path) -> frozenset[str]:
    """Return the names of the modules of a folder that the plain run takes with this seed."""
    names = sorted(path.name for path in folder.glob("test_*.py") if path.name not in _EACH_TIME)
    first = _draw(folder.name) % min(OF_MODULES, len(names))
    return frozenset(names[first::OF_MODULES])


def exercised(item: pytest.Item) -> str:
    """The part that a conformance behaviour exercises; ``target`` where it does not name one, "" for other tests."""
    if item.path.parent.name != "conformance" or getattr(item, "cls", None) is None:
        return ""
    return str(getattr(getattr(item, "function", None), EXERCISES, "target"))


def sampled(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return what a run of this breadth takes of ``items``, and what it leaves."""
    if IN_FULL:
        return items, []
    taken = _shorten(_sample_groups(items, _ci_group if WHOLE else _group))
    kept = {id(item) for item in taken}
    return taken, [item for item in items if id(item) not in kept]


def choose(group: str, items: Iterable[T], number: int) -> list[T]:
    """Return ``number`` of the items in their order, chosen by the seed; all of them in a run in full."""
    every = list(items)
    if IN_FULL or len(every) <= number:
        return every
    best = sorted(range(len(every)), key=lambda index: _draw(f"{group} {index}"))
    return [every[index] for index in sorted(best[:number])]


def examples(number: int) -> int:
    """How many examples a property is tried with; a fifth of them outside of a run in full."""
    return number if IN_FULL else max(number // 5, 10)


def is_repeat(collector: pytest.Collector, test: object) -> bool:
    """Whether ``test`` is a behaviour that another column shows, so that this run does not even collect it."""
    if IN_FULL or collector.path.parent.name != "conformance" or not isinstance(collector, pytest.Class):
        return False
    part = getattr(test, EXERCISES, "target")
    if collector.name in _GUEST_ALONE:
        return part != "guest" or not WHOLE
    return part == "guest" and collector.path.name not in _GUEST_COLUMNS and not _WITHOUT_GUEST.search(collector.name)


def _sample_groups(items: Sequence[pytest.Item], group: Callable[[pytest.Item], tuple[str, int]]) -> list[pytest.Item]:
    """Return one in so many of each group; the seed decides which, and of each group at least one is taken."""
    groups: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    taken: set[int] = set()
    for item in items:
        if not WHOLE and thorough.mark in item.iter_markers():
            taken.add(id(item))  # is skipped with its reason
        else:
            groups[group(item)].append(item)
    for (name, one_in), members in groups.items():
        first = _draw(name) % min(one_in, len(members))
        taken.update(map(id, members[first::one_in]))
    return [item for item in items if id(item) in taken]


def one_in(module: str, *, is_column: bool) -> int:
    """Return of how many tests of a module one is taken, so that it does not take long; its path is below the root."""
    if IN_FULL or Path(module).name in _NOT_SHORTENED:
        return 1
    return max(math.ceil(_seconds()[module] / (_LONGEST_COLUMN_S if is_column else _LONGEST_S)), 1)


@cache
def _seconds() -> Counter[str]:
    """The seconds of whole modules."""
    seconds: Counter[str] = Counter()
    for unit, duration in durations().items():
        seconds[unit.partition("::")[0]] += round(duration)
    return seconds


def _shorten(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items without a part of those of long modules; the others have the property ``ONE_IN``."""

    def group(item: pytest.Item) -> tuple[str, int]:
        module = item.nodeid.partition("::")[0]
        if item.path.name in _NOT_SHORTENED:
            return item.nodeid, 1
        return module, one_in(module, is_column=bool(exercised(item)))

    taken = _sample_groups(items, group)
    whole = Counter(item.nodeid.partition("::")[0] for item in items)
    left = Counter(item.nodeid.partition("::")[0] for item in taken)
    for item in taken:
        module = item.nodeid.partition("::")[0]
        if left[module] < whole[module]:
            item.user_properties.append((ONE_IN, whole[module] / left[module]))
    return taken


def _ci_group(item: pytest.Item) -> tuple[str, int]:
    """Return the group of an item in CI, and the number of its items of which one is taken."""
    name = getattr(getattr(item, "cls", None), "__name__", "")
    module, folder, test = item.path.name, item.path.parent.name, item.nodeid.partition("[")[0]
    if name in _SAMPLED_COLUMNS:
        return name, _SAMPLED_COLUMNS[name]
    if exercised(item) and module not in _MAIN_COLUMNS:
        return name, _OF_REPEATS
    if test != item.nodeid and (folder in _DEAR_FOLDERS or module in _DEAR_MODULES):
        return test, _OF_VARIANTS
    return item.nodeid, 1


def _group(item: pytest.Item) -> tuple[str, int]:
    module, folder = item.nodeid.partition("::")[0], item.path.parent.name
    if folder == "conformance" and item.path.name != "test_local.py":
        return module, _OF_COLUMNS
    if folder in _SAMPLED_FOLDERS or item.path.name in _SAMPLED_MODULES:
        return module, _OF_TESTS
    return item.nodeid.partition("[")[0], _OF_PARAMETERS


def _draw(name: str) -> int:
    """Return a number that depends on the seed and the name alone, so that all workers agree on it."""
    return zlib.crc32(f"{SEED} {name}".encode())
