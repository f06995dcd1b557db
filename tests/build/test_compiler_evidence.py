"""How strong the evidence is: cheating drafts stay below honest ones, and a file that was named has to be seen."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models.scripted import ScriptedModel
from hermes_exec_agent.skills.build.cases import derive_file_case, parse_examples, parse_expected_files, request_cases
from hermes_exec_agent.skills.build.draft import CASES_PROMPT
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level
from tests.build.conftest import NO_CASES
from tests.rigs import corpus
from tests.rigs.breadth import WHOLE, thorough
from tests.rigs.drafts import REFUSED, level_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("sandboxes")]

DRAFTS = corpus.items("drafts")
ABOVE = {str(Level.SEPARATE), str(Level.PERSON)}
LAB = "generate-csv-report", "sales-report"
"""A written-down number and no file, and the words of docs/lab.md."""


def levels(
    kind: str, folder: Path, *, judge: str | None = None, ids: tuple[str, ...] = ()
) -> dict[str, tuple[str, str]]:
    """What came of the drafts of this kind."""
    turn = asyncio.Semaphore(2)

    async def one(item: dict[str, object]) -> tuple[str, str]:
        async with turn:
            room = folder / kind / str(item["id"])
            await asyncio.to_thread(room.mkdir, parents=True)
            return await level_of(item, kind, room, judge=judge)

    async def every() -> dict[str, tuple[str, str]]:
        chosen = [item for item in DRAFTS if not ids or item["id"] in ids]
        found = await asyncio.gather(*map(one, chosen))
        return {item["id"]: each for item, each in zip(chosen, found, strict=True)}

    return asyncio.run(every())


@pytest.mark.parametrize(
    "step", [pytest.param(4, id="sample", marks=thorough), pytest.param(1, id="full", marks=pytest.mark.soak)]
)
def test_no_cheating_draft_gets_above_self_tested_and_honest_ones_do(tmp_path: Path, step: int) -> None:
    chosen = tuple(str(item["id"]) for item in DRAFTS[::step])
    cheats = {name: found for name, found in levels("cheat", tmp_path, ids=chosen).items() if found[0] in ABOVE}
    assert cheats == {}
    low = {name: found for name, found in levels("honest", tmp_path, ids=chosen).items() if found[0] not in ABOVE}
    assert len(low) * 20 <= len(chosen), low


def test_the_lab_s_draft_is_above_self_tested_because_its_file_was_seen(tmp_path: Path) -> None:
    chosen = LAB if WHOLE else LAB[:1]
    assert set(levels("honest", tmp_path / "a", ids=chosen).values()) == {("separate", "")}
    assert {level for level, _ in levels("cheat", tmp_path / "b", ids=chosen).values()} == {REFUSED}
    item = next(each for each in DRAFTS if each["id"] == LAB[0])
    blind = {
        "cases": [{key: value for key, value in case.items() if key != "files"} for case in item["judge"]["cases"]]
    }
    level, why = levels("honest", tmp_path / "c", judge=json.dumps(blind), ids=LAB[:1])[LAB[0]]
    assert (level, "report.csv" in why) == ("self-tested", True)


@thorough
def test_without_a_separate_context_examples_alone_are_self_tested(tmp_path: Path) -> None:
    found = levels("honest", tmp_path, judge=NO_CASES, ids=(*LAB, "make-slug"))
    assert {level for level, _ in found.values()} == {"self-tested"}


SIGNATURE = "def f(a: int) -> int:\n    ..."
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def asked(reply: object, known: list[Case]) -> tuple[list[Case], ScriptedModel]:
    model = ScriptedModel([json.dumps(reply)])
    return asyncio.run(request_cases(model, "task", "f(1) -> 2", SIGNATURE, SCHEMA, known)), model


def test_a_separate_context_is_asked_for_files_and_its_echo_of_an_example_is_no_case() -> None:
    reply = {
        "cases": [
            {"arguments": {"a": 1}, "result": 2},
            {"arguments": {"a": 3}, "result": None, "files": {"data/x.csv": {"lines": ["3"]}}},
            {"arguments": {"a": 4}, "files": {"../x.csv": {"lines": ["3"]}}},
            {"arguments": {"a": "no"}, "result": 1},
            {"arguments": {"a": 5}, "result": 6},
        ],
        "constant": "it is\nso",
    }
    found, model = asked(reply, parse_examples("f(1) -> 2"))
    assert [(each.arguments, each.files, each.returns, each.constant) for each in found] == [
        ({"a": 3}, {"x.csv": {"lines": ["3"]}}, False, "it is so"),
        ({"a": 5}, {}, True, "it is so"),
    ]
    assert {each.source for each in found} == {Level.SEPARATE}
    (request,) = model.requests
    assert request.messages[0].content == CASES_PROMPT
    assert "files" in str(request.schema)


SAID: dict[str, dict[str, Any]] = {
    'f([["a", 1]]) -> 1 and leaves report.csv with the headers Product, Revenue': {"contains": ["Product", "Revenue"]},
    'Writes report.csv with the lines "a,1" and "b,2".': {"lines": ["a,1", "b,2"]},
    "Write report.csv with the columns Name and Age sorted by Age": {"contains": ["Name", "Age"]},
    "It saves the sums as data/report.csv.": {"contains": ""},
}


@pytest.mark.parametrize("text", SAID)
def test_what_a_request_says_of_a_file_becomes_a_case(text: str) -> None:
    assert parse_expected_files(text) == {"report.csv": SAID[text]}
    (case,) = parse_examples(f"{text}\nf(1) -> 2")[-1:]
    assert case.files == {"report.csv": SAID[text]}
    made = Case({"a": 3}, 4, Level.SEPARATE)
    assert derive_file_case([made], [], text) == [
        Case({"a": 3}, None, Level.REQUEST, files={"report.csv": SAID[text]}, returns=False)
    ]


def test_a_name_with_a_field_is_that_of_the_arguments() -> None:
    text = "Write them to '/app/data/[filename].csv' with headers: A, B."
    (case,) = derive_file_case([Case({"filename": "q1"}, None, Level.SEPARATE)], [], text)
    assert case.files == {"q1.csv": {"contains": ["A", "B"]}}
    assert derive_file_case([Case({"name": "q1"}, None, Level.SEPARATE)], [], text) == []


def test_a_text_that_speaks_of_reading_a_file_is_no_case() -> None:
    assert parse_expected_files("Read in.csv and write nothing.") == {}
