"""A skill with a written-down answer is refused, and what it leaves is looked at: cases with files, other arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_policies.gate.analysis.mutants import make_small_mutants
from hermes_exec_policies.gate.analysis.trial_arguments import make_variants
from hermes_exec_policies.gate.cases import (
    Case,
    find_difference,
    find_named_files,
    find_unseen_files,
    parse_expected,
    read_left_files,
    strongest_level,
)
from hermes_exec_policies.gate.verdict import Level
from tests.build.conftest import SCRIPT

ROWS = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "integer"}}}}


def test_only_cases_that_its_writer_has_not_seen_make_evidence_stronger() -> None:
    seen, separate, person = (Case([1], 1, level) for level in (Level.REQUEST, Level.SEPARATE, Level.PERSON))
    assert strongest_level([seen]) == strongest_level([]) == Level.SELF_TESTED
    assert strongest_level([seen, separate]) == Level.SEPARATE
    assert strongest_level([seen, separate, person]) == Level.PERSON


def test_a_case_with_files_is_read_recorded_and_read_again() -> None:
    text = '{"arguments": [1], "files": {"/app/data/out/a.csv": {"lines": ["x"], "contains": "y"}}}'
    case = Case.parse(text)
    assert (case.files, case.returns) == ({"out/a.csv": {"lines": ["x"], "contains": "y"}}, False)
    assert Case.from_facts(json.loads(json.dumps(case.facts()))) == case
    assert Case.from_facts({"arguments": [1], "result": 2, "source": "request"}) == Case([1], 2, Level.REQUEST)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "/app/data", "/app/data/../x", "a//b", "", "~/../x", "a\nb", "./x"]
)
def test_a_file_elsewhere_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(UsageError, match="is not a file below /app/data") as refused:
        Case.parse(json.dumps({"arguments": [1], "files": {path: {"equals": ""}}}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "files", [[], 3, {"a": {}}, {"a": {"is": "x"}}, {"a": {"equals": ["x"]}}, {"a": {"lines": [1]}}, {"a": "x"}]
)
def test_files_that_say_nothing_are_refused(files: Any) -> None:
    with pytest.raises(UsageError):
        parse_expected(files)


def left(folder: Path, **texts: str | bytes) -> Any:
    for name, text in texts.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_left_files(folder)


def test_files_are_compared_by_text_whatever_ends_their_lines(tmp_path: Path) -> None:
    found = left(tmp_path, a="x,1\r\ny,2\r\n", b="\ufeffx", c=b"\xff\xfe")
    for content in ({"equals": "x,1\ny,2"}, {"lines": ["x,1", "y,2"]}, {"lines": ["y,2"]}, {"contains": ["1\ny"]}):
        assert find_difference({"a": content}, found) == ("", "")
    assert find_difference({"b": {"equals": "x"}}, found) == ("", "")
    for content in ({"equals": "x,1"}, {"lines": ["y,2", "x,1"]}, {"lines": ["x"]}, {"contains": ["z"]}):
        assert find_difference({"a": content}, found)[0] == "a"
    assert find_difference({"d": {"contains": ""}}, found) == ("d", "does not exist")
    assert "not UTF-8 text" in find_difference({"c": {"contains": "x"}}, found)[1]


NAMED = {
    "Write a CSV report with the headers A and B to data/report.csv.": {"report.csv"},
    "Write parameters as CSV to '/app/data/[filename].csv' with headers: A, B.": {"*.csv"},
    "Leaves `<name>.csv`, such as q1.csv.": {"*.csv"},
    "Writes /app/data/FILENAME.csv and README.md.": {"*.csv", "README.md"},
    "It saves summary.json and log.txt.": {"summary.json", "log.txt"},
    "Ein Bericht als bericht.csv": {"bericht.csv"},
    "Parses a file like photo.png": set[str](),
    "Writes nothing, see https://host.example/a.csv": set[str](),
    'kind_of("a.png") -> "image", written in capitals': set[str](),
}


@pytest.mark.parametrize("text", NAMED)
def test_files_that_a_text_says_are_left_are_known(text: str) -> None:
    assert find_named_files(text) == NAMED[text]


def test_a_named_file_is_seen_where_a_case_looks_at_it() -> None:
    case = {"out/q3.csv": {"contains": "x"}}
    assert find_unseen_files({"*.csv", "q3.csv"}, [case]) == []
    assert find_unseen_files({"report.csv"}, [case]) == find_unseen_files({"report.csv"}, []) == ["report.csv"]


@pytest.mark.parametrize(
    "arguments",
    [{"rows": []}, {"a": 0}, [True], {"a": "2026-01-02", "b": [{"x": 1.5, "y": None}]}, ["a\nb"], {"d": {"k": [1]}}],
    ids=str,
)
def test_other_arguments_have_the_same_types(arguments: Any) -> None:
    found = make_variants(arguments, ROWS)
    assert found
    assert arguments not in found
    for other in found:
        pairs = zip(_values(arguments), _values(other), strict=True)
        assert all(type(one) is type(two) for one, two in pairs)


def _values(arguments: Any) -> list[Any]:
    return [*arguments.values()] if isinstance(arguments, dict) else arguments  # pyright: ignore[reportUnknownArgumentType]  JSON


def test_nothing_varies_where_there_are_no_arguments() -> None:
    assert make_variants({}, {}) == make_variants([], {}) == []


def test_each_argument_each_write_and_each_literal_is_broken_in_turn() -> None:
    made = make_small_mutants(SCRIPT, "generate_csv_report")
    kinds = [each.kind for each in made]
    assert [kinds.count(kind) for kind in ("argument", "write", "literal", "operator")] == [1, 2, 6, 1]
    assert {each.source.count("writer.write") for each in made if each.kind == "write"} == {1}
    assert len({each.source for each in made}) == len(made)
    assert not [each for each in made if "each row has" in each.name]  # what an error says is of no account
