"""Do a review in a child that is killed before or after a call that touches a disk; look at what the next one leaves.

``python -m tests.rigs.review_kills FOLDER SEED DEATHS`` prints one JSON line for each death: the steps, and what is
amiss after the next worker. Half of the deaths are in the worker that continues after the one before.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from hermes_exec.config.settings import LearningSettings, MemorySettings, Profiles, Settings
from hermes_exec.errors import HermesError
from hermes_exec_agent.learning.outcomes import record_task
from hermes_exec_agent.learning.review import Worker, find_changes
from hermes_exec_agent.learning.review_queue import ENDS, STREAM, ReviewRules, list_pending, read_reviews
from hermes_exec_agent.memory.journal import Journal
from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.runtime.events import EventLog
from tests.rigs.skill_kills import Counting, Death

TEXTS = ("I prefer answers in one sentence", "I prefer tabs")
SETTINGS = Settings(
    Profiles({}),
    memory=MemorySettings(memory_enabled=True, user_profile_enabled=True),
    learning=LearningSettings(review=True),
)


def open_log(folder: Path) -> EventLog:
    """The log of a folder, which is the state folder, too."""
    os.environ["XDG_STATE_HOME"] = str(folder)
    return EventLog(folder / "conversations.sqlite")


def build(folder: Path) -> None:
    """A log with two tasks and the review that they queue."""
    folder.mkdir()
    log = open_log(folder)
    for number, text in enumerate(TEXTS):
        started = {"target": "local", "model": "m", "parent": "", "system": ""}
        last: dict[str, Any] = {"content": "Done.", "tool_calls": [], "model": "m"}
        log.append_all(f"c{number}", [("started", started), ("user", {"content": text}), ("assistant", last)])
        record_task(log, f"c{number}", 2, model="m", target="local", reviews=ReviewRules(interval=2))
    log.close()


def work(folder: Path) -> None:
    """Do the reviews that wait; the model remembers each text once in every conversation that it sees."""
    writes = [ask(("memory", {"target": "user", "action": "add", "content": text})) for text in TEXTS]
    with open_log(folder) as log:
        worker = Worker(log, Models(ScriptedModel([*writes, say("Kept two.")])), SETTINGS, lambda _: None)
        asyncio.run(worker.run_pending())


def work_under(folder: Path, profiler: Any) -> int:
    """Do them in a child under a profiler; return the status of the child."""
    child = os.fork()
    if not child:
        threading.setprofile(profiler)
        sys.setprofile(profiler)
        work(folder)
        sys.setprofile(None)
        if isinstance(profiler, Counting):
            (folder / "steps").write_text(str(profiler.steps))
        os._exit(0)
    return os.waitpid(child, 0)[1]


def look(folder: Path) -> list[str]:
    """Do what is left, and return what is amiss then."""
    amiss: list[str] = []
    try:
        work(folder)
        log = open_log(folder)
        if list_pending(log):
            amiss.append("a review waits")
        (review,) = read_reviews(log)
        ends = [each.data["action"] for each in log.events(STREAM) if each.data["action"] in ENDS]
        if ends != ["done"]:
            amiss.append(f"it ended as {ends}")
        if len(review.kept) != len(TEXTS):
            amiss.append(f"kept: {review.kept}")
        changes = find_changes(log, "", review.conversation)
        if len(changes) != len(TEXTS):
            amiss.append(f"{len(changes)} changes")
        texts = [each.text for each in Journal.of_user(log, SETTINGS.memory).read("user")]
        if sorted(texts) != sorted(TEXTS):
            amiss.append(f"the file has {texts}")
    except HermesError as error:
        amiss.append(str(error))
    return amiss


def main(folder: Path, seed: int, deaths: int) -> None:
    """Die at random steps, once or several times in a row."""
    chance, now, kept = random.Random(seed), folder / "now", folder / "kept"
    build(now)
    shutil.copytree(now, kept)
    work_under(now, Counting())
    steps = int((now / "steps").read_text())
    left = deaths
    while left > 0:
        shutil.rmtree(now)
        shutil.copytree(kept, now)
        died: list[int] = []
        for _ in range(chance.randint(1, 2)):
            step = chance.randint(1, steps)
            if os.WIFSIGNALED(work_under(now, Death(step))):
                died.append(step)
        left -= len(died)
        print(json.dumps({"died": died, "amiss": look(now)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
