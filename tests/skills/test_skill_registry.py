"""What is registered, by whom, and what becomes of it."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.skills.registry.record import Author, Origin
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_policies.gate.verdict import security
from hermes_exec_policies.load import load_policy
from tests.rigs.skill_makers import PERSON, SCHEMA, registered, report_of, tree_in

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report


def register(home: RegistryHome, tree: Tree, report: Report, author: Author = PERSON, *, insist: bool = False) -> None:
    Registry(home).register(tree, report, load_policy("skill-run"), author=author, kernel="6", insist=insist)


def test_what_is_recorded_is_there_for_the_next_process(home: RegistryHome, tmp_path: Path) -> None:
    made = registered(home, tmp_path / "1")
    found = Registry(home).version("add-numbers")
    assert found == made
    assert (found.number, found.level, found.schema, found.protection) == (1, "person", SCHEMA, "protected")
    assert found.evidence["evidence"]["mutants"] == 3


def test_a_skill_is_found_by_the_name_of_its_module_too(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path / "1")
    assert Registry(home).skill("add_numbers").name == "add-numbers"


def test_versions_follow_each_other_and_name_what_they_were_made_from(home: RegistryHome, tmp_path: Path) -> None:
    first = registered(home, tmp_path / "1")
    second = registered(home, tmp_path / "2", files={"README.md": "more"})
    assert (second.number, second.parents, second.digest == first.digest) == (2, (first.digest,), False)
    assert Registry(home).skill("add-numbers").current == 2


def test_everything_is_kept_for_this_user_alone(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path / "1")
    for path in (home.folder, home.keys, home.content):
        assert path.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (home.log, *home.keys.iterdir())} == {0o600}


def test_the_database_has_a_journal_that_is_rolled_back(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path / "1")
    base = sqlite3.connect(home.log)
    assert base.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with pytest.raises(sqlite3.IntegrityError, match="never removed"):
        base.execute("DELETE FROM events")
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        base.execute("UPDATE events SET line = ''")
    base.close()


def test_what_the_gate_did_not_accept_is_not_registered(home: RegistryHome, tmp_path: Path) -> None:
    tree = tree_in(tmp_path)
    for report in (
        report_of(tree, evidence=None),
        report_of(tree, findings=(security("suites.x", "evil"),)),
        report_of(tree, digest="0" * 64),
        report_of(tree, policy_digest="0" * 64),
    ):
        with pytest.raises(Refused):
            register(home, tree, report)
    assert Registry(home).skills() == {}


def test_bytes_that_changed_after_the_gate_are_not_registered(home: RegistryHome, tmp_path: Path) -> None:
    tree = tree_in(tmp_path)
    report = report_of(tree)
    (tree.root / "scripts/main.py").write_text("evil = 1\n")
    with pytest.raises(Refused, match="scripts/main.py: its bytes were changed"):
        register(home, tree, report)
    assert Registry(home).skills() == {}
    assert [path for path in home.content.iterdir() if not path.name.startswith(".")] == []


@pytest.mark.parametrize("shells", [None, ("local",), ("docker:x", "local"), ("ssh://localhost",), ("gpu",)])
def test_an_agent_with_a_shell_on_this_machine_registers_nothing(
    home: RegistryHome, tmp_path: Path, shells: tuple[str, ...] | None
) -> None:
    tree = tree_in(tmp_path)
    author = Author(kind="agent", model="some-model", shells=shells)
    with pytest.raises(Refused, match="without a sandbox"):
        register(home, tree, report_of(tree), author)
    register(home, tree, report_of(tree), author, insist=True)
    assert Registry(home).version("add-numbers").protection == "unprotected"


def test_an_agent_in_a_sandbox_registers(home: RegistryHome, tmp_path: Path) -> None:
    author = Author(kind="agent", model="some-model", shells=("docker:python:3.11", "bubblewrap"))
    version = registered(home, tmp_path, author=author)
    assert (version.protection, version.author.model) == ("protected", "some-model")
    assert Registry(home).version("add-numbers").author == author


def test_an_older_version_can_be_chosen_and_pinned(home: RegistryHome, tmp_path: Path) -> None:
    for number in (1, 2):
        registered(home, tmp_path / str(number), files={"README.md": str(number)})
    registry = Registry(home)
    registry.choose("add-numbers", 1)
    assert registry.skill("add-numbers").current == 1
    assert registry.pin("add-numbers") == 1
    registered(home, tmp_path / "3", files={"README.md": "3"})
    assert (registry.skill("add-numbers").current, registry.skill("add-numbers").state) == (1, "pinned")
    with pytest.raises(UsageError, match="pinned to version 1"):
        registry.choose("add-numbers", 3)
    registry.mark("unpinned", "add-numbers")
    registry.choose("add-numbers", 3)
    assert registry.skill("add-numbers").current == 3


def test_what_is_archived_is_kept(home: RegistryHome, tmp_path: Path) -> None:
    version = registered(home, tmp_path / "1")
    registry = Registry(home)
    for _ in range(2):
        registry.mark("archived", "add-numbers")
    assert registry.skill("add-numbers").state == "archived"
    registry.verify(version)
    registry.mark("restored", "add-numbers")
    kinds = [event.kind for event in registry.skill("add-numbers").history]
    assert (registry.skill("add-numbers").state, kinds) == ("ready", ["registered", "archived", "restored"])


def test_quarantine_is_of_one_version_and_ends_by_release_or_by_proof(home: RegistryHome, tmp_path: Path) -> None:
    version = registered(home, tmp_path / "1")
    registry = Registry(home)
    registry.quarantine("add-numbers", 1, "it failed often")
    assert registry.skill("add-numbers").kept_back == {1: "it failed often"}
    registry.release("add-numbers")
    assert registry.skill("add-numbers").state == "ready"
    registry.quarantine("add-numbers", 1, "again")
    registry.record_proof(version, report_of(tree_in(tmp_path / "again")), load_policy("skill-run"), kernel="7")
    assert (registry.skill("add-numbers").state, registry.version("add-numbers").kernel) == ("ready", "7")


def test_a_proof_does_not_release_a_version_that_waits_for_a_person(home: RegistryHome, tmp_path: Path) -> None:
    first = registered(home, tmp_path / "1")
    tree = tree_in(tmp_path / "2", {"README.md": "more"})
    registry, policy = Registry(home), load_policy("skill-run")
    made = registry.register(tree, report_of(tree), policy, author=PERSON, kernel="6", origin=Origin(kind="untrusted"))
    for kernel in ("7", "8"):
        registry.record_proof(made, report_of(tree), policy, kernel=kernel)
        skill = registry.skill("add-numbers")
        assert (skill.current, set(skill.kept_back), registry.version("add-numbers", 2).kernel) == (1, {2}, kernel)
    registry.release("add-numbers", 2)
    registry.quarantine("add-numbers", 2, "it failed often")
    registry.record_proof(made, report_of(tree), policy, kernel="9")
    skill = registry.skill("add-numbers")
    assert (skill.current, skill.kept_back) == (2, {})
    assert first.digest != made.digest


def test_a_version_is_not_proven_by_the_proof_of_others(home: RegistryHome, tmp_path: Path) -> None:
    version = registered(home, tmp_path / "1")
    other = tree_in(tmp_path / "2", {"README.md": "other"})
    with pytest.raises(Refused, match="not proven again"):
        Registry(home).record_proof(version, report_of(other), load_policy("skill-run"), kernel="7")


def test_names_that_are_not_known_are_told_with_the_nearest(home: RegistryHome, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is none yet"):
        Registry(home).skill("add-number")
    registered(home, tmp_path)
    with pytest.raises(UsageError, match="'add-numbers'"):
        Registry(home).skill("add-number")
    with pytest.raises(UsageError, match="no version 7"):
        Registry(home).version("add-numbers", 7)


def test_many_register_at_once(home: RegistryHome, tmp_path: Path) -> None:
    def one(number: int) -> None:
        registered(home, tmp_path / str(number), f"skill-{number}")

    workers = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(Registry(home).skills()) == [f"skill-{number}" for number in range(6)]


def test_a_list_has_what_is_not_archived_by_name(home: RegistryHome, tmp_path: Path) -> None:
    for name in ("second", "first", "gone"):
        registered(home, tmp_path / name, name)
    registry = Registry(home)
    registry.mark("archived", "gone")
    assert [each["name"] for each in registry.list_facts()] == ["first", "second"]
    assert [each["state"] for each in registry.list_facts(archived=True)] == ["ready", "archived", "ready"]


def test_a_reason_with_a_name_that_is_no_text_can_be_read_again(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path / "1")
    Registry(home).quarantine("add-numbers", 1, "changed: \udcff")
    assert Registry(home).skill("add-numbers").kept_back == {1: "changed: \udcff"}
