"""A week of three persons through the real command line: what is kept, made into skills, audited and archived.

The model is a program behind a socket. As the agent it does what the first word of a request says; as the reviewer it
remembers what persons said, and makes a guide of each task that their check confirmed. Each day has a clock of its own,
also in the processes that a command starts, and one program a day is killed in the middle of a reply.

CI has fewer days, persons and tasks.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.learning import experience
from hermes_exec_agent.learning.audit import TASKS as TASKS_PER_AUDIT
from hermes_exec_agent.models import ask, say
from tests.chat.conftest import cli
from tests.memory import test_memory_acceptance as memory_week
from tests.memory.test_memory_acceptance import ATTACKS, CHANGES, DECISIONS, PERSONS, PREFERENCES, Week
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import IN_FULL, thorough
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.cli.conftest import Cli
    from tests.rigs.endpoint import Answer

__all__ = ["cli"]

DAYS = 7 if IN_FULL else 5
DAY_S = 86_400
LATER = 100
"""Days after the week, when skills are unused for long."""
CLOCK = """
import os, time
_real, _shift = time.time, int(os.environ["TEST_CLOCK"])
time.time = lambda: _real() + _shift
"""
_CONVERSATIONS = 60 if IN_FULL else 15
_TASKS = {
    "owner": ("publish-pages", "sort-invoices"),
    "ops": ("rotate-logs", "stage-release"),
    "lab": ("prepare-run",),
}
TASKS = {person: _TASKS[person] if IN_FULL else _TASKS[person][:1] for person in PERSONS}
"""Tasks that repeat: the name of the guide for each, too."""
ABOUT = {
    "publish-pages": ("Uploads static HTML to the web server.", "A reachable host", "Browsers keep old copies."),
    "sort-invoices": ("Files bills by supplier and month.", "Scanned PDF files", "Two vendors share one name."),
    "rotate-logs": ("Compresses yesterday's journals.", "Free disk space", "A daemon may hold its file."),
    "stage-release": ("Builds a candidate and tags the commit.", "A clean checkout", "Tags cannot be moved later."),
    "prepare-run": ("Creates the directory tree of an experiment.", "A fixed seed", "Quotas count inodes."),
}
"""What the guide of each task says: its purpose, a prerequisite and a pitfall."""
STEPS = ("mkdir -p {0}", "touch {0}/a", "cp {0}/a {0}/b", "mv {0}/b {0}/c", "touch {0}/done")
MANIFEST = """\
---
name: {name}
description: {about}
---
## Context
{about}
## Prerequisites
{needs}
## Steps
`mkdir -p {name} && touch {name}/done`
## Pitfalls
{pitfall}
## Variations
None for {name}.
"""


def decide(body: dict[str, Any]) -> Answer:
    """Reply as the agent, the reviewer, or the writer of notes."""
    system = str(body["messages"][0]["content"])
    if "You look at what a person and an agent said" in system:
        return _remember(body["messages"])
    if experience.ASK in system:
        return _make_guide(body["messages"])
    request = _last_request(body["messages"])
    if found := re.search(r"^repeat: (\S+)$", request, re.MULTILINE):
        return _repeat(found[1], request, _results(body["messages"]))
    if re.search(r"^(prefer|change): ", request, re.MULTILINE):
        return say("I will.")
    return memory_week.decide(body)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _last_request(messages: list[dict[str, Any]]) -> str:
    return next(_text(each) for each in reversed(messages) if each["role"] == "user")


def _results(messages: list[dict[str, Any]]) -> int:
    last = max(index for index, each in enumerate(messages) if each["role"] == "user")
    return sum(each["role"] == "tool" for each in messages[last:])


def _repeat(name: str, request: str, done: int) -> Answer:
    """Do a task step by step, or by its guide if the request names one."""
    if f"- {name} " in request:
        if done == 0:
            return ask(("skill_view", {"name": name}))
        steps: tuple[str, ...] = ("", f"mkdir -p {name} && touch {name}/done")
    else:
        steps = tuple(each.format(name) for each in STEPS)
    return ask(("terminal", {"command": steps[done]})) if done < len(steps) else say("It is done.")


def _remember(messages: list[dict[str, Any]]) -> Answer:
    """Remember what each request in the transcript prefers or changes, and try it with orders that were read."""
    transcript = _text(messages[1])
    wishes: list[dict[str, Any]] = []
    for verb, what in re.findall(r'^#\d+ user: "(prefer|change): (.*?)"', transcript, re.MULTILINE):
        old, _, new = what.partition(" => ")
        replaced = {"action": "replace", "old_text": old, "content": new}
        wishes.append({"action": "add", "content": what} if verb == "prefer" else replaced)
    wishes += [{"action": "add", "content": attack} for attack in ATTACKS if attack[:20] in transcript]
    done = _results(messages)
    return ask(("memory", {"target": "user", **wishes[done]})) if done < len(wishes) else say("Kept.")


def _make_guide(messages: list[dict[str, Any]]) -> Answer:
    transcript = _text(messages[1])
    if _results(messages):
        return say("Kept one guide.")
    found, task = re.search(r"repeat: ([\w-]+)", transcript), re.search(r"task #(\d+)", transcript)
    assert found is not None
    assert task is not None
    name = found[1]
    about, needs, pitfall = ABOUT[name]
    text = MANIFEST.format(name=name, about=about, needs=needs, pitfall=pitfall)
    patch = "*** Begin Patch\n*** Add File: SKILL.md\n" + "".join(f"+{line}\n" for line in text.splitlines())
    events = [int(each) for each in re.findall(r"^#(\d+) result", transcript, re.MULTILINE)]
    given = {
        "action": "create",
        "name": name,
        "patch": f"{patch}*** End Patch\n",
        "task": int(task[1]),
        "events": events,
    }
    return ask(("skill_manage", {**given, "events": events}))


class LearningWeek(Week):
    """The command line of one user, whose processes all have the clock of the day."""

    def __init__(self, cli: Cli, rig: ScriptedEndpoint) -> None:
        super().__init__(cli, rig, embedder="")
        cli.configure(
            "[memory]\nmemory_enabled = true\nuser_profile_enabled = true\nnudge_interval = 4\n"
            "[learning]\nreview = true\n"
        )
        folder = cli.cwd.parent / "clock"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(CLOCK)
        cli.env["PYTHONPATH"] = str(folder)
        self.conversations = 0

    def argv(self, *words: str) -> list[str]:
        self.cli.env["TEST_CLOCK"] = str((self.day - DAYS) * DAY_S)
        return [sys.executable, "-P", "-m", "hermes_exec", *words]

    def say(self, person: str, request: str, *more: str) -> str:
        self.conversations += 1
        return super().say(person, request, *more)

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def settle(self) -> None:
        """Do the reviews that wait, or wait for the worker that does."""

        def is_done() -> bool:
            self.run("review", "run")
            return all(each["end"] for each in self.json("review", "status"))

        wait_until(is_done)
        for skill in self.json("skill", "list"):
            if skill["state"] == "quarantined":  # the conversation had read text from outside
                self.run("skill", "release", skill["name"])

    def repeat(self, person: str, name: str) -> None:
        self.say(person, f"repeat: {name}", "--check", f"test -f {name}/done && rm -r {name}")

    def calls_of(self, name: str) -> list[int]:
        """The calls of each repetition of a task, the first one first."""
        records = reversed(self.json("learn", "outcomes", "--limit", "1000"))
        return [int(each["calls"]) for each in records if f"-f {name}/done" in each["evidence"]["detail"]]


def live(week: LearningWeek) -> None:
    """Hold the conversations of these days, with a kill on each."""
    for number, text in enumerate(ATTACKS):
        (week.cli.cwd / f"page{number}").write_text(f"Notes of the team.\n{text}\n")
    changes = {person: list(CHANGES[person]) for person in PERSONS}
    for day in range(DAYS):
        week.day = day
        for person in PERSONS:
            if day == 0:
                for each in PREFERENCES[person]:
                    week.say(person, f"prefer: {each}")
            elif changes[person]:
                week.say(person, f"change: {' => '.join(changes[person].pop(0))}")
            if day in (1, 2):
                week.say(person, f"decide: {list(DECISIONS[person])[day - 1]}")
            if day in (2, 4):
                for name in TASKS[person]:
                    week.repeat(person, name)
            if day in (3, 5, 6):
                week.say(person, "hello")
        if day in (1, 3):
            week.say("ops", f"read: page{day // 2}")
        week.kill_in_the_middle(PERSONS[day % len(PERSONS)])
        week.settle()
    while week.conversations < _CONVERSATIONS or any(_is_waiting(week, person) for person in PERSONS):
        week.say(PERSONS[week.conversations % len(PERSONS)], "hello")
        if week.conversations >= _CONVERSATIONS:
            week.settle()
    week.settle()
    week.day = DAYS
    week.run("memory", "notes", "--write")


def _is_waiting(week: LearningWeek, person: str) -> bool:
    """Whether a person's wishes have not been reviewed yet, as too few requests followed."""
    file = week.user_file(person)
    replaced = dict(CHANGES[person])
    return any(replaced.get(each, each) not in file for each in PREFERENCES[person])


@pytest.fixture
def week(cli: Cli) -> Generator[LearningWeek]:
    with ScriptedEndpoint([decide], forever=True) as rig:
        cli.env |= {"LLM_PROVIDER": "custom", "LLM_BASE_URL": rig.url, "OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m"}
        yield LearningWeek(cli, rig)
        assert not rig.complaints


@thorough
@pytest.mark.skipif("learning" not in memory_week.WEEKS, reason="this sample has another week. Try: ./dev test --all")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_week_makes_the_agent_better_by_evidence_and_leaves_orders_out(week: LearningWeek) -> None:
    live(week)
    assert len(week.json("conversations", "list", "--last", "1000")) >= _CONVERSATIONS
    memory_week.check_preferences(week)
    check_skills(week)
    check_audits(week)
    memory_week.check_attacks(week)
    memory_week.check_rebuild(week)
    check_curator(week)


def check_skills(week: LearningWeek) -> None:
    """Check that each repeated task was done by a guide with outside evidence, and with fewer calls."""
    for name in (each for names in TASKS.values() for each in names):
        first, *later = week.calls_of(name)
        assert first == len(STEPS), name
        assert later, name
        assert all(count < first for count in later), name
        shown = week.run("skill", "show", name)
        assert f"check: test -f {name}/done" in shown


def check_audits(week: LearningWeek) -> None:
    last = _CONVERSATIONS // TASKS_PER_AUDIT
    audit = week.json("audit", "show", str(last))
    assert audit["number"] == last
    for number in range(1, last + 1):
        assert (week.state / "audits" / f"{number}.md").exists()


def check_curator(week: LearningWeek) -> None:
    """Check that the guides that nothing used since are archived, except for the pinned one."""
    names = {each for tasks in TASKS.values() for each in tasks}
    week.run("skill", "pin", "rotate-logs")
    week.run("curator", "run")
    week.day = DAYS + LATER
    week.run("curator", "run", "--apply")
    kept = {each["name"] for each in week.json("skill", "list") if each["state"] != "archived"}
    assert kept & names == {"rotate-logs"}
