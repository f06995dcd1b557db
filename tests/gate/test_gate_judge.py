"""A function that behaves while it is judged is never more than self-tested: its arguments are varied by the gate."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec_policies.gate.launch import read_program
from hermes_exec_policies.gate.rewrites import instrument, read_outcomes
from hermes_exec_policies.gate.source import read_signature
from hermes_exec_policies.gate.trial_arguments import generate_arguments, is_encoded
from tests.rigs import corpus, judged
from tests.rigs.breadth import choose, thorough

if TYPE_CHECKING:
    from tests.conftest import Require

TRICKS = corpus.items("judge")
SCHEMA = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        "kind": {"enum": ["csv", "tsv"]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "share": {"type": "number"},
        "names": {"type": "object", "additionalProperties": {"type": "integer"}},
        "strict": {"type": "boolean"},
    },
    "required": ["rows", "kind", "limit", "names"],
}
SOURCE = """
def run(a: int, kind: str) -> int:
    '''Answer.

    Raises:
        ValueError: it is none.
    '''
    if a == 12345 or kind in ("one", "two"):
        return {("x", 1): 2}.get((kind, a), 0)
    return max(a, -7) if a % 2 else [each for each in (1, 2) if each > a][0]
"""


@thorough
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_trick_on_the_judge_is_more_than_self_tested(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    found = asyncio.run(judged.judge(choose("judge", TRICKS, 6)))
    assert {name: why for name, why in found.items() if why[0] not in {"refused", "self-tested"}} == {}
    assert all(why for _, why in found.values())


def test_tricks_are_right_for_the_case_and_wrong_somewhere() -> None:
    assert len(TRICKS) == len({each["code"] for each in TRICKS}) >= 18
    for each in TRICKS:
        assert ast.parse(each["code"])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_generated_arguments_are_of_the_schema_and_new(seed: int) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    known: dict[str, Any] = {"rows": [["a"]], "kind": "csv", "limit": 3, "names": {"x": 1}}
    made = generate_arguments(SCHEMA, [known], SOURCE, 40, seed)
    assert made == generate_arguments(SCHEMA, [known], SOURCE, 40, seed)
    assert len({json.dumps(each, sort_keys=True) for each in [known, *made]}) == len(made) + 1 > 20
    for each in made:
        # Shapes of known arguments keep their types, but a text of an enumeration may become another one.
        schema = SCHEMA | {"properties": {**SCHEMA["properties"], "kind": {"type": "string"}}}  # type: ignore[dict-item]  # JSON
        jsonschema.validate(each, schema)


def test_constants_of_the_source_are_tried() -> None:
    signature = read_signature(ast.parse(SOURCE), ("run",))
    assert signature is not None
    assert signature.raises == {"ValueError"}
    tried = [
        each
        for seed in range(8)
        for each in generate_arguments(signature.schema, [{"a": 1, "kind": "z"}], SOURCE, 40, seed)
    ]
    assert {12345} <= {each["a"] for each in tried if isinstance(each, dict)}
    assert {"one", "two"} <= {each["kind"] for each in tried if isinstance(each, dict)}


def test_every_condition_is_recorded_and_changes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    plain: dict[str, Any] = {}
    exec(SOURCE, plain)
    recorded = instrument(SOURCE, "run")
    assert not recorded.ambient
    for a, kind in ((12345, "z"), (0, "one"), (3, "z"), (0, "z")):
        names: dict[str, Any] = {}
        exec(recorded.source, names)
        assert names["run"](a, kind) == plain["run"](a, kind)
    seen = read_outcomes("HXCALL 0\n" + capfd.readouterr().err)[0]
    assert {number for number, _ in seen} == set(recorded.lines)
    assert set(recorded.lines.values()) == {8, 9, 10}
    assert len([number for number in recorded.lines if {(number, True), (number, False)} <= seen]) >= 4


def test_handlers_of_errors_and_rare_ways_are_conditions(capfd: pytest.CaptureFixture[str]) -> None:
    source = "def run(a: int):\n    try:\n        return {7: 11}[a]\n    except KeyError:\n        return a\n"
    names: dict[str, Any] = {}
    exec(instrument(source, "run").source, names)
    assert [names["run"](a) for a in (1, 7)] == [1, 11]
    assert [line for line in capfd.readouterr().err.split("\n") if line] == ["HXSEEN 0 1", "HXSEEN 0 0"]

    def rare(text: str) -> list[bool]:
        return list(instrument(f"def run(a: int):\n    return {text}\n", "run").rare.values())

    assert rare("a + (a == 7)") == [True]
    assert rare("{7: 11}.pop(a, a)") == rare("a if a != 7 else 0") == [False]
    assert rare("a if a > 7 else 0") == []


def test_encoded_bytes_are_recognized() -> None:
    assert is_encoded("iVBORw0KGgoAAAANSUhEUgAAAAEAAAACCAYAAAB=")
    assert not any(map(is_encoded, ("deadbeef text", "python12", "aGVsbG8gd29ybGQ=", "", 5, ["AAAA"])))


def test_what_depends_on_more_than_the_arguments_is_ambient() -> None:
    def ambient(text: str) -> bool:
        return instrument(f"import os, time\ndef run(a: int) -> int:\n    return {text}\n", "run").ambient

    assert ambient("time.time() > 5")
    assert ambient("a if 'X' in os.environ else 0")
    assert ambient("len(open('/proc/self/mounts').read())")
    assert ambient("hash('a') % 9 == 1")
    assert not ambient("len(os.environ.get('HERMES_DATA_DIR', '/app/data'))")


def test_the_caller_of_several_requests_uses_what_the_caller_of_one_has() -> None:
    called = re.findall(r'names\["(\w+)"\]', read_program("varied"))
    assert set(called) <= {
        each.name for each in ast.parse(read_program("call")).body if isinstance(each, ast.FunctionDef)
    }
    assert called
