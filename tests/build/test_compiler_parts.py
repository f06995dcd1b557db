"""What the compiler reads out of words: drafts, examples, and when enough is enough."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec_agent.skills.build.builder import Attempts, NotRegistered
from hermes_exec_agent.skills.build.cases import list_required, parse_examples
from hermes_exec_agent.skills.build.draft import Draft, UnreadableReply, parse_draft
from hermes_exec_policies.gate.analysis.signature import describe_signature
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level, Report, functional, security
from tests.build.conftest import SCRIPT, draft
from tests.rigs.skill_makers import home_in, registered

if TYPE_CHECKING:
    from pathlib import Path


def found(text: str) -> list[tuple[Any, Any]]:
    return [(case.arguments, case.result) for case in parse_examples(text)]


EXAMPLES: list[tuple[str, list[Any]]] = [
    ("add(1, 2) -> 3", [([1, 2], 3)]),
    ("So `add(1, 2)` returns `3`.", [([1, 2], 3)]),
    ("add(a=1, b=[2, {'c': None}]) == [1, 'x'], and so on", [({"a": 1, "b": [2, {"c": None}]}, [1, "x"])]),
    ('slug("A (b)") => "a-b"; slug("") => ""', [(["A (b)"], "a-b"), ([""], "")]),
    ('{"text": "A"} → "a"', [({"text": "A"}, "a")]),
    ("f(-1.5) should return -1.5.", [([-1.5], -1.5)]),
    ("f() gives true", [([], True)]),
    ("f(1) gives None", [([1], None)]),
    ('like {"arguments": {"a": 1}, "result": 2} please', [({"a": 1}, 2)]),
    ("len([1]) == 1", []),
    ("f(x) -> 3", []),
    ("f(1) -> a list", []),
    ("f(1) -> 2024-01-05", []),
    ("f((1, 2)) -> 3", []),
    ("f(*[1]) -> 1", []),
    ("f(1, a=2) -> 1", []),
    ("it returns 3", []),
    ("def f(a: int) -> int", []),
    ("Write data/report.csv with the headers Product and Revenue", []),
]


@pytest.mark.parametrize(("text", "cases"), EXAMPLES)
def test_examples_are_taken_where_they_are_literal(text: str, cases: list[Any]) -> None:
    assert found(text) == cases


def test_examples_of_one_name_are_no_other_skill_s() -> None:
    told = "add(1, 2) -> 3; other(1, 2) -> 5; add(a=2, b=2) == 4"
    assert [(case.arguments, case.result) for case in parse_examples(told, {"add"})] == [
        ([1, 2], 3),
        ({"a": 2, "b": 2}, 4),
    ]


def test_a_change_has_to_hold_what_was_held_unless_somebody_said_otherwise_since(tmp_path: Path) -> None:
    sum_of_zeros = Case({"a": 0, "b": 0}, 0, Level.SEPARATE)
    held = [Case({"a": 1, "b": 2}, 3, Level.PERSON), sum_of_zeros]
    version = registered(home_in(tmp_path), tmp_path / "made", held=held)
    given = [Case({"rows": []}, 0, Level.PERSON), sums := Case([1, 1], 2, Level.PERSON)]
    known = list_required(version, given, "Now add_numbers(1, 2) -> 12, and slug(1, 2) -> 7")
    assert known == [Case([1, 2], 12, Level.REQUEST), sum_of_zeros, sums]


@given(
    st.lists(
        st.sampled_from(("f(", ")", "{", "}", "[", "->", "==", "1", '"a"', " ", "\n", ":", ",", "`", "*")), max_size=40
    )
)
def test_no_words_make_the_search_for_examples_fail(pieces: list[str]) -> None:
    parse_examples("".join(pieces))


@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "Here it is:\n{}\nDone.", "```\n{}\n```"])
def test_a_draft_is_found_in_a_reply(around: str) -> None:
    assert parse_draft(around.replace("{}", draft())).script == SCRIPT


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("I cannot do that.", "no JSON object"),
        ('{"script": "x"', "cannot be read"),
        ('{"script": "x"}', "description: Field required"),
        ("[1]", "no JSON object"),
        ("{" * 100_000, "cannot be read"),
    ],
)
def test_a_reply_without_a_draft_says_what_is_missing(reply: str, says: str) -> None:
    with pytest.raises(UnreadableReply, match=says):
        parse_draft(reply)


def test_a_description_cannot_end_the_part_that_it_stands_in() -> None:
    made = Draft(description="a\n---\nmetadata: {needs-hosts: x}\n# b", script="x", tests="y").files("add-numbers")
    head = made["SKILL.md"].split("\n")
    assert head[:2] == ["---", "name: add-numbers"]
    assert json.loads(head[2].removeprefix("description: ")) == "a --- metadata: {needs-hosts: x} # b"
    assert head[3] == "---"


def test_a_description_keeps_its_letters() -> None:
    made = Draft(description="Zählt 😀", script="x", tests="y").files("add-numbers")
    assert 'description: "Zählt 😀"' in made["SKILL.md"]


def test_packages_are_named_in_the_script() -> None:
    made = Draft(description="a", script="import yaml\n", tests="y", packages=["pyyaml>=6"]).files("add-numbers")
    assert made["scripts/add_numbers.py"].startswith('# /// script\n# dependencies = ["pyyaml>=6"]\n# ///\n')


def test_a_signature_shows_no_code() -> None:
    told, schema = describe_signature(SCRIPT, "generate_csv_report")
    assert told.startswith("def generate_csv_report(rows: list[dict[str, object]]) -> dict[str, object]:")
    assert "DictWriter" not in told
    assert schema["required"] == ["rows"]
    assert describe_signature("def (", "x") == describe_signature("x = 1", "x") == ("", {})


def judged(*codes: str) -> Report:
    return Report(tuple(functional(code, f"what {code} says") for code in codes))


def test_three_repairs_after_the_first_attempt_and_no_more() -> None:
    attempts = Attempts("add-numbers")
    for number in range(3):
        assert attempts.count_failure(judged(f"suites.{number}")).number == number + 1
    with pytest.raises(NotRegistered, match="after 4 attempts: what suites.3 says") as failed:
        attempts.count_failure(judged("suites.3"))
    assert [each.reasons for each in failed.value.attempts] == [(f"what suites.{number} says",) for number in range(4)]
    with pytest.raises(NotRegistered):
        attempts.check()


def test_the_same_diagnosis_twice_in_a_row_is_enough_and_between_others_it_is_not() -> None:
    attempts = Attempts("add-numbers")
    for code in ("suites.a", "suites.b"):
        attempts.count_failure(judged(code))
    attempts.count_failure(judged("suites.a"))
    again = Attempts("add-numbers")
    again.count_failure(judged("suites.a", "suites.b"))
    with pytest.raises(NotRegistered, match="the same as before"):
        again.count_failure(judged("suites.b", "suites.a"))


def test_a_security_finding_is_the_end_and_hides_every_other_reason() -> None:
    attempts = Attempts("add-numbers")
    with pytest.raises(NotRegistered, match="refused for security") as failed:
        attempts.count_failure(Report((functional("suites.a", "mend me"), security("suites.x", "it opens the vault"))))
    assert "mend me" not in str(failed.value)
    assert "vault" not in str(failed.value)


def test_replies_that_are_no_draft_count_too() -> None:
    attempts = Attempts("add-numbers")
    attempts.count_unreadable("no JSON")
    with pytest.raises(NotRegistered, match="the same as before"):
        attempts.count_unreadable("no JSON")
