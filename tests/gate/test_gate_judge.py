"""A function that behaves while it is judged is never more than self-tested: its arguments are varied by the gate."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec_policies.gate.analysis.conditions import Instrumented, instrument
from hermes_exec_policies.gate.analysis.parts import list_parts
from hermes_exec_policies.gate.analysis.signature import read_signature
from hermes_exec_policies.gate.analysis.trial_arguments import generate_arguments, is_encoded
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.check import check
from hermes_exec_policies.gate.launch import read_program
from tests.rigs import corpus, judged
from tests.rigs.breadth import choose, thorough

if TYPE_CHECKING:
    from pathlib import Path

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
    for a, kind in ((12345, "z"), (0, "one"), (3, "z"), (0, "z")):
        names: dict[str, Any] = {}
        exec(recorded.source, names)
        assert names["run"](a, kind) == plain["run"](a, kind)
    seen = recorded.read_outcomes("HXCALL 0\n" + capfd.readouterr().err)[0]
    assert {number for number, _ in seen} == set(recorded.lines)
    assert set(recorded.lines.values()) == {8, 9, 10}
    assert len([number for number in recorded.lines if {(number, True), (number, False)} <= seen]) >= 4


def find_untaken(recorded: Instrumented, calls: list[tuple[Any, ...]], capfd: pytest.CaptureFixture[str]) -> list[Any]:
    names: dict[str, Any] = {"suppress": contextlib.suppress}
    exec(recorded.source, names)
    for call in calls:
        with contextlib.suppress(ValueError):
            names["run"](*call)
    seen = recorded.read_outcomes("HXCALL 0\n" + capfd.readouterr().err)[0]
    return sorted((recorded.lines[number], way) for number, way in recorded.ways - seen)


UNNEEDED: dict[str, tuple[str, str]] = {
    "all needed": ("c = [a, b]\n return sum(c)", ""),
    "an operand": ("return a + b + a // 1000", "a // 1000"),
    "an entry": ("t = {20: 22, 7: 1}\n return a + b * t[a] // 22", "7"),
    "an item": ("return sum((a, b, a >> 9))", "a >> 9"),
    "an assignment": ("t = {a: b}\n t[7] = 1\n return a + t[a]", "t[7] = 1"),
    "a method": ("return int(str(a + b).replace('77', '78'))", "str(a + b).replace('77', '78')"),
    "a subscript": ("return int(str(a + b)[:2])", "str(a + b)[:2]"),
    "an argument": ("return sum([a, b], a // 99)", "a // 99"),
    "a text": ("return int(f\"{a + b}{''.zfill(a // 99)}\")", "{''.zfill(a // 99)}"),
    "an error": ("if a + b > 99: raise ValueError\n return a + b", ""),
    "a caught error": ("try:\n  if a + 0 > 99: raise ValueError\n  return a + b\n except KeyError: raise", "0"),
    "constants": ("return sum([a, b], start=0) + int(isinstance(a, (int, str))) - 1", ""),
    "another function": ("return add(a, b)\ndef add(x, y):\n return x + y + x // 99", "x // 99"),
}


@pytest.mark.parametrize("case", UNNEEDED)
def test_a_part_without_which_the_case_has_the_same_result_is_found(case: str) -> None:
    body, expected = UNNEEDED[case]

    def call(source: str) -> Any:
        names: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            exec(source, names)
            return names["run"](20, 22)
        return None

    source = f"def run(a, b):\n {body}\n"
    assert call(source) == 42
    unneeded = {each.text for each in list_parts(source, "run", 99)[1:] if call(each.source) == 42}
    assert expected in unneeded if expected else not unneeded


def test_files_of_a_case_show_which_parts_it_needs(require: Require, tmp_path: Path) -> None:
    require("bwrap", "makes the sandbox")
    code = (
        "import pathlib\n\n\ndef run(name: str) -> int:\n"
        '    """Write a greeting to hello.txt."""\n'
        '    text = f"Hello {name}\\n" + "Bye\\n"\n'
        '    return pathlib.Path("/app/data/hello.txt").write_text(text)\n'
    )
    test = judged.TEST.partition("def test_sum")[0] + (
        "def test_sum():\n    assert main.run('Ann') == 14\n"
        "    assert pathlib.Path('/app/data/hello.txt').read_text() == 'Hello Ann\\nBye\\n'\n"
    )
    files = {"scripts/main.py": code, "tests/test_main.py": test}
    skill = corpus.write_skill(tmp_path / "write-greeting", files)

    case = {"arguments": {"name": "Bo"}, "files": {"hello.txt": {"equals": "Hello Bo\nBye\n"}}}
    assert asyncio.run(check(skill, cases=[Case.parse(json.dumps(case))])).level == "person"


UNTAKEN: dict[str, tuple[str, list[Any]]] = {
    "handler": ("try:\n  return {7: 11}[a]\n except KeyError:\n  return a + b", [(4, False)]),
    "order": ("if a > 70: return 11\n return a + b", [(2, True)]),
    "default": ("return {7: 11}.pop(a, a + b)", [(2, False)]),
    "replaced entry": ("return {a: a + b, **{7: 11}}[a]", [(2, True)]),
    "loop": ("for _ in {7} & {a}:\n  return 11\n return a + b", [(3, True)]),
    "case": ("c = 11\n match a:\n  case 2 | 20: c = a + b\n return c", [(3, True)]),
    "suppressed": (
        "c = 11\n with contextlib.suppress(AssertionError):\n  assert a != 7\n  c = a + b\n return c",
        [(3, True)],
    ),
    "swallowed": ("c = 11\n try:\n  if a == 7: raise KeyError\n  c = a + b\n finally:\n  return c", [(4, True)]),
    "caught": (
        "try:\n  if a == 7: raise KeyError(1)\n  return a + b\n except KeyError as e:\n  return e",
        [(3, True), (5, True)],
    ),
    "function": ("f = [sum, lambda _: 11]\n return f[a // 21]((a, b))", [(2, True)]),
    "errors": (
        "if a < 2 or not (b and b < 99): raise ValueError\n elif b == 98:\n  raise OSError\n return a + b",
        [],
    ),
    "any": ("if any(c < 2 for c in (a, b)): raise ValueError\n return a + b", []),
    "last": ("if a == 2: return 4\n if a == 20: return 42\n raise ValueError", []),
    "fixed": ("return {'a': a, 'b': b, ('c', -1): 7}['a'] + b", []),
}


@pytest.mark.parametrize(("body", "ways"), UNTAKEN.values(), ids=UNTAKEN)
@pytest.mark.filterwarnings("ignore:'return' in a 'finally'")
def test_ways_to_a_result_that_no_call_takes_are_left(
    body: str, ways: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    recorded = instrument(f"def run(a, b):\n {body}\n", "run")
    assert find_untaken(recorded, [(20, 22), (2, 2)], capfd) == ways


def test_encoded_bytes_are_recognized() -> None:
    assert is_encoded("iVBORw0KGgoAAAANSUhEUgAAAAEAAAACCAYAAAB=")
    assert not any(map(is_encoded, ("deadbeef text", "python12", "aGVsbG8gd29ybGQ=", "", 5, ["AAAA"])))


def test_the_caller_of_several_requests_uses_what_the_caller_of_one_has() -> None:
    called = re.findall(r'names\["(\w+)"\]', read_program("varied"))
    assert set(called) <= {
        each.name for each in ast.parse(read_program("call")).body if isinstance(each, ast.FunctionDef)
    }
    assert called
