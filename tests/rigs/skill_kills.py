"""Register a skill in a child that is killed before and after each call that touches a disk; look at what is left.

``python -m tests.rigs.skill_kills FOLDER EVERY`` prints one JSON line for each death: the step, what was registered
when it was looked at, and whether that was whole. EVERY is how many steps apart the deaths are.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.registry import Registry
from tests.rigs.skill_makers import home_in, registered

if TYPE_CHECKING:
    from types import FrameType

    from hermes_exec_agent.skills.registry.home import RegistryHome

TOUCHING = frozenset(
    {
        "chmod", "execute", "executescript", "fchmod", "flock", "fsync", "link", "mkdir", "open", "rename", "replace",
        "unlink", "write",
    }
)  # fmt: skip


class Death:
    """A profiler that ends this process at the ``step``-th call into the system, or return from one."""

    def __init__(self, step: int) -> None:
        self._left = step

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in {"c_call", "c_return"} and getattr(argument, "__name__", "") in TOUCHING:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Counting:
    """A profiler that counts the steps at which `Death` could kill."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in {"c_call", "c_return"} and getattr(argument, "__name__", "") in TOUCHING:
            self.steps += 1


def die_registering(home: RegistryHome, folder: Path, step: int) -> bool:
    """Register the second version in a child that dies at a step; whether it died."""
    child = os.fork()
    if not child:
        sys.setprofile(Death(step))
        registered(home, folder, files={"README.md": "second"})
        sys.setprofile(None)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def look(home: RegistryHome, folder: Path) -> dict[str, Any]:
    """What is registered, and what is amiss with it; another version can be registered afterwards."""
    amiss: list[str] = []
    numbers: list[int] = []
    try:
        registry = Registry(home)
        for skill in registry.skills().values():
            numbers += skill.versions
            for number in skill.versions:
                version = registry.version(skill.name, number)
                amiss += content.find_differences(registry.tree(version), version.files)
        registered(home, folder, files={"README.md": "after"})
        last = max(registry.skill("add-numbers").versions)
        amiss += [] if last == len(numbers) + 1 else [f"the next version is {last}"]
        amiss += [path.name for path in home.content.iterdir() if path.name.startswith(".")]
    except HermesError as error:
        amiss.append(str(error))
    return {"versions": numbers, "amiss": amiss}


def main(work: Path, every: int, *, first: bool) -> None:
    """Die at one step after another, until the child lives."""
    home, kept = home_in(work / "now"), work / "kept"
    if not first:
        registered(home, work / "first")
    else:
        (work / "now").mkdir()
    shutil.copytree(work / "now", kept)
    step, died = 1, True
    while died:
        shutil.rmtree(work / "now")
        shutil.copytree(kept, work / "now")
        died = die_registering(home, work / f"second-{step}", step)
        print(json.dumps({"step": step, "died": died, **look(home, work / f"after-{step}")}), flush=True)
        step += every


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), first=sys.argv[3:] == ["first"])
