"""The queue of proposals, and the change of the configuration that a person accepts: kills, conflicts, reversal."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import ConfigError, UsageError
from hermes_exec_agent.learning import proposals_apply, proposals_watch
from hermes_exec_agent.learning.proposals import (
    OPEN,
    STREAM,
    Draft,
    Proposal,
    add_advice,
    add_proposal,
    append_event,
    find_proposal,
    read_proposals,
    reject,
)
from hermes_exec_agent.learning.proposals_apply import (
    acknowledge,
    apply_plan,
    finish_pending,
    plan_acceptance,
    plan_reversal,
)
from hermes_exec_agent.learning.proposals_edit import Conflict, make_diff, read_values
from hermes_exec_agent.learning.proposals_git import ConfigRepository
from hermes_exec_agent.learning.proposals_watch import check_configuration, find_changes, proposals_folder
from hermes_exec_agent.runtime.events import EventLog
from tests.conftest import require_part
from tests.learning.conftest import add_task

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = "# mine\n[limits]\ntimeout_s = 60.0\n\n[agent]\nbudget = 80\n"
TIGHT = OURS.replace("80", "50")


class Person:
    """A person's configuration, and a log with one task."""

    def __init__(self, folder: Path) -> None:
        self.env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
        self.config = folder / ".config/hermes_exec"
        (self.config / "policies").mkdir(parents=True)
        self.file = self.config / "hermes.toml"
        self.file.write_text(OURS)
        self.log = EventLog(folder / ".local/state/hermes_exec/conversations.sqlite")
        add_task(self.log, "one")

    def propose(self, slug: str = "fewer-replies", change: str = "agent.budget = 50", **more: Any) -> Proposal:
        file = more.get("file", "hermes.toml")
        was = {} if change.startswith("---") else {"was": read_values(change, more.get("text", OURS))}
        draft = Draft(slug, file, change, more.get("reason", "a loop"), "one", more.get("evidence", (1,)))
        return add_proposal(self.log, draft, [], was)

    def accept(self, proposal: Proposal) -> str:
        return apply_plan(self.log, plan_acceptance(self.read(proposal), self.env), self.env)

    def revert(self, proposal: Proposal) -> str:
        return apply_plan(self.log, plan_reversal(self.read(proposal), self.env), self.env)

    def read(self, proposal: Proposal) -> Proposal:
        return find_proposal(self.log, proposal.name)

    def start(self) -> str:
        return check_configuration(self.log, self.env, enabled=True)

    def git(self, *words: str) -> str:
        folder = proposals_folder(self.env) / "configuration.git"
        done = subprocess.run(["git", "--git-dir", folder, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()


@pytest.fixture
def person(tmp_path: Path) -> Person:
    require_part("git", "it keeps each change")
    return Person(tmp_path)


def test_an_accepted_proposal_is_one_commit_and_is_reverted(person: Person) -> None:
    person.file.chmod(0o640)
    proposal = person.propose()
    commit = person.accept(proposal)
    assert person.file.read_text() == TIGHT
    assert person.file.stat().st_mode & 0o777 == 0o640
    assert person.git("log", "--format=%H %s", "-1") == f"{commit} Accept proposal 1-fewer-replies"
    assert person.git("show", "--format=", "--numstat", commit).split() == ["1", "1", "hermes.toml"]
    assert person.git("status", "--short") == ""
    person.file.write_text(f"{TIGHT}# of mine, later\n")
    acknowledge(person.log, person.env, find_changes(person.env))
    person.revert(proposal)
    assert person.file.read_text() == f"{OURS}# of mine, later\n"
    assert person.read(proposal).state == "reverted"
    with pytest.raises(UsageError, match="is reverted"):
        person.accept(proposal)


def test_a_new_policy_is_a_file_and_its_reversal_removes_it(person: Person) -> None:
    proposal = person.propose(change='extends = "skill-run"\nsummary = "mine"', file="policies/mine.toml", text="")
    planned = plan_acceptance(person.read(proposal), person.env)
    assert planned.judgement.needs_name
    person.accept(proposal)
    assert (person.config / "policies/mine.toml").read_text() == 'extends = "skill-run"\nsummary = "mine"\n'
    person.revert(proposal)
    assert not (person.config / "policies/mine.toml").exists()


def test_git_itself_reverts_the_commit_in_the_folder_of_the_configuration(person: Person) -> None:
    commit = person.accept(person.propose())
    person.git("-c", "user.name=me", "-c", "user.email=me@localhost", "revert", "--no-edit", commit)
    assert person.file.read_text() == OURS


def test_a_repository_of_ones_own_is_not_touched(person: Person) -> None:
    subprocess.run(["git", "init", "-q", person.config], check=True)
    hook = person.config / ".git/hooks/reference-transaction"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    before = {path: path.read_bytes() for path in (person.config / ".git").rglob("*") if path.is_file()}
    person.accept(person.propose())
    assert {path: path.read_bytes() for path in (person.config / ".git").rglob("*") if path.is_file()} == before


STEPS: list[tuple[Any, str]] = [
    (ConfigRepository, "prepare"), (ConfigRepository, "create_commit"), (ConfigRepository, "move_head"),
    (proposals_apply, "_mark_pending"), (proposals_apply, "append_event"), (proposals_apply, "_write_file"),
    (proposals_apply, "write_accepted"),
]  # fmt: skip


def kill_at(moment: int) -> None:
    """Kill this process with the ``moment``-th beginning or end of a step."""
    count = 0

    def count_moment() -> None:
        nonlocal count
        count += 1
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(step: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            count_moment()
            result = step(*args, **more)
            count_moment()
            return result

        return wrapped

    for owner, name in STEPS:
        setattr(owner, name, wrap(getattr(owner, name)))


@pytest.mark.parametrize("verb", ["accept", "revert"])
def test_a_kill_at_any_step_leaves_nothing_or_all(person: Person, verb: str) -> None:
    proposal = person.propose()
    person.start()
    old, new, states = OURS, TIGHT, ("open", "accepted")
    if verb == "revert":
        person.accept(proposal)
        old, new, states = TIGHT, OURS, ("accepted", "reverted")
    person.start()
    moment, seen = 0, set[str]()
    while person.read(proposal).state == states[0]:
        moment += 1
        person.log.close()
        if (child := os.fork()) == 0:
            kill_at(moment)
            getattr(person, verb)(proposal)
            os._exit(0)
        ended = os.waitpid(child, 0)[1]
        line = person.start()
        state = person.read(proposal).state
        assert (person.file.read_text(), state) in [(old, states[0]), (new, states[1])], moment
        assert ("no person accepted" in line) is False
        assert not (proposals_folder(person.env) / "pending").exists()
        exists = (proposals_folder(person.env) / "configuration.git/refs").exists()
        head = person.git("for-each-ref", "--format=%(subject)", "refs/heads") if exists else ""
        assert (f"{verb.capitalize()} proposal" in head) == (state == states[1])
        seen.add(state)
        assert os.WIFSIGNALED(ended)
    assert moment >= 5
    assert seen == set(states)


def test_a_file_that_changes_while_it_is_accepted_stays_and_is_named(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan_acceptance(person.propose(), person.env)
    mine = OURS.replace("60.0", "61.0")

    def append(*arguments: Any) -> Any:
        person.file.write_text(mine)
        return append_event(*arguments)

    monkeypatch.setattr(proposals_apply, "append_event", append)
    with pytest.raises(Conflict, match="it was changed meanwhile"):
        apply_plan(person.log, planned, person.env)
    assert person.file.read_text() == mine
    assert find_proposal(person.log, "1").state == "open"


def test_a_change_that_was_cut_off_is_ended_with_its_own_log_alone(person: Person, tmp_path: Path) -> None:
    proposal = person.propose()
    person.start()
    pending = proposals_folder(person.env) / "pending"
    other = EventLog(tmp_path / "other.sqlite")
    add_task(other, "another")
    moment = cut_off = 0
    while person.read(proposal).state == "open":
        moment += 1
        person.log.close()
        other.close()
        if (child := os.fork()) == 0:
            kill_at(moment)
            person.accept(proposal)
            os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        if pending.exists():
            cut_off += 1
            assert str(person.log.path) in check_configuration(other, person.env, enabled=True)
            assert pending.exists()
        person.start()
        assert not pending.exists()
    assert cut_off >= 1
    assert person.file.read_text() == TIGHT


def test_a_configuration_that_is_not_toml_is_one_line(person: Person) -> None:
    proposal = person.propose()
    person.file.write_text("[broken\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        plan_acceptance(proposal, person.env)
    with pytest.raises(UsageError, match="not a line"):
        read_values("a" + ".a" * 5000 + " = 1", OURS)


def test_a_conflict_is_named_and_changes_nothing(person: Person) -> None:
    first, second = person.propose(), person.propose("even-fewer", "agent.budget = 40")
    diff = person.propose("by-diff", make_diff("hermes.toml", OURS, OURS.replace("80", "30")))
    person.accept(first)
    with pytest.raises(Conflict, match=r"agent\.budget is 50 now, and was 80"):
        person.accept(second)
    with pytest.raises(Conflict, match="'\\[limits\\]'|'# mine'|timeout_s"):
        person.accept(diff)
    third = person.propose("a-limit", "limits.timeout_s = 30.0", text=TIGHT)
    planned = plan_acceptance(person.read(third), person.env)
    person.file.write_text(f"{TIGHT}# by hand\n")
    with pytest.raises(UsageError, match="no person accepted"):
        apply_plan(person.log, planned, person.env)
    acknowledge(person.log, person.env, find_changes(person.env))
    with pytest.raises(Conflict, match="changed meanwhile"):
        apply_plan(person.log, planned, person.env)
    person.accept(third)
    person.file.write_text(person.file.read_text().replace("50", "70"))
    acknowledge(person.log, person.env, find_changes(person.env))
    with pytest.raises(Conflict, match="conflict"):
        person.revert(first)
    assert "budget = 70" in person.file.read_text()


def test_links_and_other_configurations_are_not_replaced(person: Person, tmp_path: Path) -> None:
    proposal = person.propose()
    with pytest.raises(UsageError, match="HERMES_EXEC_CONFIG"):
        plan_acceptance(person.read(proposal), {**person.env, "HERMES_EXEC_CONFIG": "/x"})
    person.file.rename(tmp_path / "elsewhere.toml")
    person.file.symlink_to(tmp_path / "elsewhere.toml")
    with pytest.raises(UsageError, match="is a link"):
        person.accept(proposal)
    assert (tmp_path / "elsewhere.toml").read_text() == OURS


def test_without_git_nothing_is_changed(person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    proposal = person.propose()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no git program"):
        person.accept(proposal)
    assert (person.file.read_text(), person.read(proposal).state) == (OURS, "open")


def test_the_shell_of_an_agent_decides_nothing(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    proposal = person.propose()
    planned = plan_acceptance(person.read(proposal), person.env)
    person.start()
    person.file.write_text(f"{OURS}# by the agent\n")
    monkeypatch.setenv("HERMES_EXEC_AGENT", "m")
    for decide in (
        lambda: apply_plan(person.log, planned, person.env),
        lambda: acknowledge(person.log, person.env, find_changes(person.env)),
        lambda: reject(person.log, proposal.number),
    ):
        with pytest.raises(UsageError, match="shell of an agent"):
            decide()
    assert person.read(proposal).state == "open"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"slug": "1-other"}, "lower-case"),
        ({"slug": "fewer-repl\u0456es"}, "lower-case"),
        ({"slug": "fewer replies\x1b[2J"}, "lower-case"),
        ({"slug": "a" * 41}, "lower-case"),
        ({"slug": "taken"}, "named 'taken' already"),
        ({"reason": " "}, "the reason should have"),
        ({"reason": "x" * 2001}, "the reason should have"),
        ({"reason": "see \u202eevil"}, "a hidden character"),
        ({"reason": "the key is ghp_" + "a1B2" * 9}, "a secret"),
        ({"change": 'agent.instructions = "ghp_' + "a1B2" * 9 + '"'}, "a secret"),
        ({"change": "a.b = 1\n" * 4000}, "the change should have"),
        ({"evidence": ()}, "evidence is a list"),
        ({"evidence": (0,)}, "evidence is a list"),
        ({"evidence": (999,)}, "evidence is a list"),
        ({"file": "../../.bashrc"}, "alone"),
    ],
)
def test_a_proposal_that_is_not_as_it_should_be_is_not_queued(person: Person, more: dict[str, Any], why: str) -> None:
    person.propose("taken")
    with pytest.raises(UsageError, match=why) as caught:
        person.propose(**more)
    assert len(read_proposals(person.log)) == 1
    assert "\x1b" not in str(caught.value)
    assert "ghp_" not in str(caught.value)


def test_the_queue_is_bounded_and_a_decision_makes_room(person: Person) -> None:
    for number in range(OPEN):
        person.propose(f"more-{number}")
    with pytest.raises(UsageError, match="are open"):
        person.propose("one-too-many")
    reject(person.log, 3, "no\x1b[2J")
    assert person.propose("one-more").name == f"{OPEN + 1}-one-more"
    with pytest.raises(UsageError, match="is rejected"):
        reject(person.log, 3)
    assert "\x1b" not in str(find_proposal(person.log, "3").facts())


def test_advice_is_queued_once_for_each_audit_and_is_accepted_never(person: Person) -> None:
    audits = {1: ["one.", "two."], 2: [], 3: ["three."]}
    for _ in range(2):
        add_advice(person.log, lambda since: {number: audits[number] for number in audits if number > since})
    found = read_proposals(person.log)
    assert [(each.name, each.state, each.data["reason"]) for each in found] == [
        ("1-advice-of-audit-1", "advice", "one. two."),
        ("2-advice-of-audit-3", "advice", "three."),
    ]
    with pytest.raises(UsageError, match="is advice"):
        person.accept(found[0])
    reject(person.log, 1)


def test_a_change_that_no_person_accepted_is_reported_once_by_the_next_start(person: Person) -> None:
    assert check_configuration(person.log, person.env, enabled=False) == ""
    person.file.write_text(f"{OURS}# before the first start with proposals\n")
    assert person.start() == ""
    person.file.write_text(OURS)
    policy = person.config / "policies/x.toml"
    policy.write_text("")
    for expected in ("hermes.toml, policies/x.toml", ""):
        line = check_configuration(person.log, person.env, enabled=False)
        assert line.partition("no person accepted that: ")[2].partition(". Try")[0] == expected
    stat = policy.stat()
    policy.write_text("x")
    policy.write_text("")
    os.utime(policy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert person.start() == ""
    acknowledge(person.log, person.env, find_changes(person.env))
    assert "accepted as a person's, since the last start" in person.start()
    assert person.start() == ""
    person.accept(person.propose())
    assert "proposal 1-fewer-replies was accepted, since the last start" in person.start()
    policy.unlink()
    assert "policies/x.toml" in person.start()


def test_a_start_without_a_change_compares_in_less_than_a_millisecond(person: Person) -> None:
    for number in range(20):
        (person.config / f"policies/{number}.toml").write_text("# a policy\n" * 100)
    assert person.start() == person.start() == ""
    took: list[float] = []
    for _ in range(50):
        began = time.perf_counter()
        assert person.start() == ""
        took.append(time.perf_counter() - began)
    assert min(took) < 0.001


def test_events_without_a_change_in_the_repository_apply_nothing(person: Person) -> None:
    """The mark of an unfinished change alone, and events that name no begun change, are not believed."""
    proposal = person.propose()
    (proposals_folder(person.env)).mkdir(parents=True)
    (proposals_folder(person.env) / "pending").touch()
    finish_pending(person.log, person.env)
    person.log.append(STREAM, "proposal", {"action": "accepting", "number": 77, "commit": "x", "file": "hermes.toml"})
    finish_pending(person.log, person.env)
    assert (person.file.read_text(), person.read(proposal).state) == (OURS, "open")
    assert proposals_watch.find_changes(person.env) == {}
