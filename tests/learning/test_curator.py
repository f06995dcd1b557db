"""The curator archives what the agent does not use, merges what overlaps, and touches nothing else."""

from __future__ import annotations

import ast
import asyncio
import fcntl
import json
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec_agent.learning.backups import KEPT
from hermes_exec_agent.learning.curator import CuratorBusy, RunResult
from hermes_exec_agent.learning.curator_merge import MOST_LINES, split_paragraphs
from hermes_exec_agent.learning.curator_plan import find_similar
from hermes_exec_agent.learning.curator_schedule import is_due
from hermes_exec_agent.skills.registry.record import ScriptGrants
from tests.rigs.curator_library import AGENT, DAY_S, IMPORTED, PERSON, TEXT, UNTRUSTED

if TYPE_CHECKING:
    from tests.rigs.curator_library import Clock, Library


def run(library: Library, *exempt: str, apply: bool = True) -> RunResult:
    return asyncio.run(library.curator(exempt=exempt).run(apply=apply))


def test_what_was_not_used_is_stale_after_30_days_and_archived_after_90(library: Library, clock: Clock) -> None:
    for name in ("idle", "used", "recent"):
        library.add(name)
    clock.pass_days(45)
    library.use("used")
    assert [each.name for each in library.curator().plan().stale] == ["idle", "recent"]
    library.add("recent", text="A second version.")
    clock.pass_days(50)
    result = run(library)
    assert (result.archived, library.archived()) == (["idle"], {"idle"})
    assert [each.name for each in result.plan.stale] == ["recent", "used"]
    (event,) = library.events("archived")
    assert (event["name"], event["why"], event["run"]) == ("idle", "no use for 95 days", result.run)
    (signed,) = [each for each in library.registry.skill("idle").history if each.kind == "archived"]
    assert signed.facts == {"why": "no use for 95 days", "run": result.run}


def test_only_what_the_agent_alone_wrote_is_touched(library: Library, clock: Clock) -> None:
    library.add("persons", PERSON)
    library.add("imported", IMPORTED)
    library.add("edited")
    library.add("edited", PERSON, "The person's words.")
    library.add("edited", AGENT, "The agent again.")
    library.add("pinned")
    library.registry.pin("pinned")
    library.add("scheduled")
    library.add("quoted", UNTRUSTED)
    library.add("agents")
    clock.pass_days(400)
    result = run(library, "scheduled")
    assert library.archived() == {"agents", "quoted"}
    assert set(result.plan.exempt) == {"persons", "imported", "edited", "pinned", "scheduled"}
    assert result.plan.exempt["pinned"] == "it is pinned"


def test_a_run_without_apply_changes_nothing_and_leaves_a_report(library: Library, clock: Clock) -> None:
    library.add("idle")
    clock.pass_days(100)
    before = library.states()
    result = run(library, apply=False)
    assert ([each.name for each in result.plan.archive], library.states(), result.archived) == (["idle"], before, [])
    assert [each["what"] for each in library.curator().history()] == ["reported"]
    assert library.curator().backups.list_backups() == []


def test_nothing_is_stale_before_uses_were_counted_for_so_long(library: Library, clock: Clock) -> None:
    library.add("idle")
    clock.pass_days(100)
    library.home.counts.rename(library.folder / "elsewhere")
    assert run(library).archived == []
    clock.pass_days(91)
    assert run(library).archived == ["idle"]


def test_restore_brings_back_what_a_run_changed_with_bytes_counts_and_pins(library: Library, clock: Clock) -> None:
    library.add("idle")
    library.add("idle", text="Second version.")
    library.registry.choose("idle", 1)
    library.use("idle")
    library.add("pinned", PERSON)
    library.registry.pin("pinned")
    clock.pass_days(100)
    before, counts = library.states(), library.counter.dump()
    result = run(library)
    assert library.archived() == {"idle"}
    version = library.registry.version("idle")
    damaged = library.home.content / version.digest / "SKILL.md"
    damaged.chmod(0o600)
    damaged.write_text("damaged")
    library.home.counts.unlink()
    done = library.curator().restore()
    assert (done.run, done.restored, done.left) == (result.run, ["idle"], [])
    assert library.states() == before
    assert library.counter.dump() == counts
    with pytest.raises(UsageError, match="no run to undo"):
        library.curator().restore()
    assert run(library).archived == []  # a restored skill counts as used


def test_restore_leaves_what_was_changed_since_the_run(library: Library, clock: Clock) -> None:
    library.add("again")
    library.add("idle")
    clock.pass_days(100)
    run(library)
    library.registry.mark("restored", "again")
    library.registry.mark("archived", "again")
    done = library.curator().restore()
    assert (done.restored, done.left, library.archived()) == (["idle"], ["again"], {"again"})


def test_guides_that_overlap_become_one_with_both_as_ancestors(library: Library) -> None:
    one = library.add("deploy-site", text=TEXT, about="Deploys the site.")
    extra = f"{TEXT}\n\nAsk before Friday evening.\n\n```\nmake check\n\nmake\n```"
    two = library.add("site-deploy", text=extra, about="Deploys the site.", files={"references/hosts.md": b"staging\n"})
    library.use("site-deploy")
    library.use("deploy-site")
    library.use("deploy-site")
    before = library.states()
    result = run(library)
    assert (result.merged, library.archived()) == (["site-deploy into deploy-site 2"], {"site-deploy"})
    merged = library.registry.version("deploy-site")
    assert (merged.parents, merged.origin.kind) == ((one.digest, two.digest), "agent")
    (event,) = library.events("merged")
    assert (event["ancestors"], event["before"]) == ([one.digest, two.digest], 1)
    files = library.bytes_of(merged.digest)
    text = files["SKILL.md"].decode()
    assert files["references/hosts.md"] == b"staging\n"
    assert text.count("Copy the folder to staging") == 1
    assert "## From `site-deploy`" in text
    assert text.endswith("Ask before Friday evening.\n\n```\nmake check\n\nmake\n```\n")
    done = library.curator().restore()
    assert done.restored == ["site-deploy", "deploy-site"]
    after = library.states()
    assert after["site-deploy"] == before["site-deploy"]
    assert after["deploy-site"][:3] == before["deploy-site"][:3]
    assert run(library).merged == []  # a person parted them


def test_without_a_proof_there_is_only_advice(library: Library) -> None:
    library.add("one", text=TEXT, files={"references/a.md": b"one"})
    library.add("other", text=TEXT, files={"references/a.md": b"other"})
    long = "\n".join(f"Step {number} of the long text." for number in range(MOST_LINES - 5))
    library.add("long-one", text=long)
    library.add("long-other", text=long + "\n\nOne more.\n\nAnd more, at the end of the text.")
    before = library.states()
    result = run(library)
    assert (result.merged, library.states()) == ([], before)
    assert sorted(result.advice) == [
        f"long-one and long-other: the merged text would have more than {MOST_LINES} lines",
        "one and other: they have different files of one name: references/a.md",
    ]
    assert len(library.events("advised")) == 2


def test_untrusted_text_and_granted_scripts_are_never_merged(library: Library) -> None:
    library.add("one", text=TEXT)
    library.add("quoted", UNTRUSTED, TEXT)
    library.add("granted", text=TEXT)
    library.registry.grant_scripts("granted", ScriptGrants(hosts=("example.org",)))
    assert library.curator().plan().overlaps == ()


def test_what_changes_during_a_run_is_left_alone(library: Library, clock: Clock) -> None:
    for name in ("first", "pinned", "used"):
        library.add(name)
    library.add("x-one", text=TEXT)
    library.add("x-two", text=TEXT)
    clock.pass_days(91)
    library.use("x-one")
    library.use("x-two")

    def act(line: str) -> None:
        if line.startswith("archive first"):
            library.registry.pin("pinned")
            library.use("used")
        if line.startswith("merge"):
            library.registry.pin("x-one")

    result = asyncio.run(library.curator(tell=act).run(apply=True))
    assert (result.archived, result.merged, library.archived()) == (["first"], [], {"first"})
    assert library.registry.skill("x-one").current == 1


def test_a_skill_with_changed_files_is_left_alone(library: Library, clock: Clock) -> None:
    version = library.add("damaged")
    clock.pass_days(100)
    (library.home.content / version.digest / "SKILL.md").write_text("another")
    result = run(library)
    assert result.archived == []
    assert "damaged" in result.advice[0]


def test_five_backups_are_kept_and_all_their_bytes(library: Library, clock: Clock) -> None:
    runs: list[str] = []
    for number in range(KEPT + 2):
        library.add(f"skill-{number}")
        clock.pass_days(100)
        runs.append(run(library).run)
    assert [each.run for each in library.curator().backups.list_backups()] == runs[:1:-1]
    assert len(list((library.home.folder / "backups/objects").iterdir())) == KEPT + 2
    with pytest.raises(HermesError, match="no longer kept"):
        library.curator().restore(runs[0])
    assert library.curator().restore(runs[2]).restored == ["skill-2"]


def test_a_backup_that_another_program_changed_is_refused(library: Library, clock: Clock) -> None:
    library.add("idle")
    clock.pass_days(100)
    run(library)
    (path,) = (library.home.folder / "backups").glob("backup-*.json")
    text, signature = json.loads(path.read_text())
    path.write_text(json.dumps([text.replace('"pinned":false', '"pinned":true'), signature]))
    with pytest.raises(Refused, match="the backup was changed"):
        library.curator().restore()
    assert library.archived() == {"idle"}


def test_of_two_curators_at_once_one_works(library: Library, clock: Clock) -> None:
    library.add("idle")
    clock.pass_days(100)
    busy: list[CuratorBusy] = []

    def second(_: str) -> None:
        curator = library.curator()
        with pytest.raises(CuratorBusy) as caught:
            curator.restore()
        busy.append(caught.value)

    result = asyncio.run(library.curator(tell=second).run(apply=True))
    assert (result.archived, len(busy)) == (["idle"], 1)
    handle = os.open(library.home.folder / "curator.lock", os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it was released
    finally:
        os.close(handle)


def test_a_full_disk_ends_a_run_before_its_first_change_and_the_next_one_continues(
    library: Library, clock: Clock
) -> None:
    library.add("idle", files={"references/large.md": b"x" * (1 << 20)})
    clock.pass_days(100)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, before[1]))
    try:
        with pytest.raises(HermesError, match="backup cannot be read or written"):
            run(library)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert library.archived() == set()
    result = run(library)
    assert result.archived == ["idle"]
    assert library.curator().restore().restored == ["idle"]
    assert [each["interrupted"] for each in library.events("finished")] == [True, False]


def test_a_clock_that_goes_back_archives_nothing_and_stops_nothing(library: Library, clock: Clock) -> None:
    library.add("young")
    clock.pass_days(60)
    library.use("young")
    assert run(library).archived == []
    clock.pass_days(-300)
    assert run(library).archived == []
    assert not is_due(library.log, clock())
    clock.pass_days(-8)
    assert is_due(library.log, clock())
    clock.pass_days(300 + 8 + 91)
    assert run(library).archived == ["young"]


def test_a_run_is_due_once_a_week_while_no_conversation_is_active(library: Library, clock: Clock) -> None:
    assert is_due(library.log, clock())
    library.log.append("talk", "user", {"content": "hi"})
    assert not is_due(library.log, clock())
    assert is_due(library.log, clock(), ending="talk")
    clock.pass_days(2.1 / 24)
    assert is_due(library.log, clock())
    run(library, apply=False)
    assert not is_due(library.log, clock() + 6.9 * DAY_S)
    assert is_due(library.log, clock() + 7.1 * DAY_S)
    assert [each.id for each in library.log.conversations()] == ["talk"]


def test_similar_texts_are_found_without_comparing_all_of_them() -> None:
    texts = {f"t{number}": frozenset(f"w{number}-{word}" for word in range(10)) for number in range(20)}
    texts["copy"] = frozenset([*sorted(texts["t3"])[:9], "another"])
    every = [
        (one, other)
        for one in texts
        for other in texts
        if one < other and len(texts[one] & texts[other]) / len(texts[one] | texts[other]) >= 0.8
    ]
    assert [pair[1:] for pair in find_similar(texts, 0.8)] == every == [("copy", "t3")]


def test_a_fenced_block_is_part_of_one_paragraph() -> None:
    assert split_paragraphs("a\n\n```\nb\n\n~~~\nc\n```\nd\n\n\ne") == [
        ["a"], ["```", "b", "", "~~~", "c", "```", "d"], ["e"],
    ]  # fmt: skip


def test_no_function_of_the_curator_deletes() -> None:
    folder = Path(__file__).parents[2] / "agent/hermes_exec_agent/learning"
    modules = [*folder.glob("curator*.py"), *folder.glob("backups.py")]
    assert len(modules) >= 4
    deleting = {"unlink", "rmtree", "remove", "rmdir", "removedirs", "truncate", "ftruncate", "shutil"}
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            names = {getattr(node, "attr", ""), getattr(node, "id", ""), getattr(node, "name", "")}
            assert not names & deleting, f"{path.name}: {names & deleting}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not any(word in node.value for word in ("DELETE", "DROP ", "UPDATE ")), path.name
