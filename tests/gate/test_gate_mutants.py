"""A skill is broken on purpose, and tests that pass all the same tested nothing."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_policies.gate.analysis.mutants import make_mutants
from hermes_exec_policies.gate.candidate import Candidate
from hermes_exec_policies.gate.child_process import ChildProcess
from hermes_exec_policies.gate.environments import copy_tools
from hermes_exec_policies.gate.manifest import read_manifest
from hermes_exec_policies.gate.tree import copy_tree
from hermes_exec_policies.load import load_policy
from tests.rigs.breadth import thorough
from tests.rigs.corpus import write_skill

if TYPE_CHECKING:
    from tests.conftest import Require

EFFECTS = """from pathlib import Path

def run(name: str) -> bool:
    '''Write a greeting, and say it.'''
    (folder := Path("/app/data/letters")).mkdir(exist_ok=True)
    (folder / "old").write_text("new")
    (folder / name).write_text(f"Dear {name}")
    print(name)
    return True
"""
TESTS = """import sys, pathlib
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
import main
FOLDER = pathlib.Path("/app/data/letters")
FOLDER.mkdir(exist_ok=True)
(FOLDER / "old").write_text("old")

def test_a_file():
    main.run('Ann')
    assert (FOLDER / 'Ann').read_text() == 'Dear Ann'

def test_a_file_that_was_there():
    main.run('Bob')
    assert (FOLDER / 'old').read_text() == 'new'

def test_what_it_prints(capsys):
    main.run('Eve')
    assert capsys.readouterr().out == 'Eve\\n'

def test_its_type():
    assert isinstance(main.run('Joe'), bool)
"""


def in_vain(source: str) -> str:
    """The mutant that does everything and to no end."""
    (found,) = [each for each in make_mutants(source, "run") if each.name.startswith("gives other values")]
    assert found.must_die
    return found.source


def result(source: str, *given: Any) -> Any:
    """What its function gives."""
    names: dict[str, Any] = {}
    exec(compile(source, "main.py", "exec"), names)
    return names["run"](*given)


def test_mutants_break_one_function_and_leave_the_rest() -> None:
    source = "import os\nLIMIT = 3\ndef run(a):\n    return a + 1 if a > 2 else 0\n"
    made = make_mutants(source, "run")
    kinds = [(each.must_die, each.must_live) for each in made[:4]]
    assert kinds == [(True, False), (True, False), (True, False), (False, True)]
    assert all("LIMIT = 3" in each.source for each in made)
    assert len({each.source for each in made}) == len(made)


@pytest.mark.parametrize(
    "value", [True, False, 0, 4, -4.5, "", "text", [], [1, [2]], (1,), {}, {"a": None, "b": {"c": [False]}}], ids=repr
)
def test_another_value_of_the_same_type_stands_for_each(value: Any) -> None:
    given = result(in_vain("def run(a):\n    '''Give it.'''\n    return a\n"), value)
    assert type(given) is type(value)
    assert given != value


def test_every_part_and_the_length_of_a_value_are_others_and_its_names_stay() -> None:
    given = result(in_vain("def run():\n    return {'rows': [1, None], 'ok': True}\n"))
    assert given == {"rows": [-1_000_004, "?", "?"], "ok": False, "?": "?"}


@pytest.mark.parametrize("body", ["pass", "return", "return None", "return object()"])
def test_a_function_whose_value_has_no_other_fails_instead(body: str) -> None:
    with pytest.raises(TypeError):
        result(in_vain(f"def run():\n    {body}\n"))


def test_what_functions_within_it_give_stays() -> None:
    source = "def run(a):\n    def twice(b):\n        return 2 * b\n    return [lambda: 7, twice(a)][1:]\n"
    assert result(in_vain(source), 4) == [-1_000_011, "?"]


def test_a_coroutine_is_one_still() -> None:
    assert asyncio.run(result(in_vain("async def run(a):\n    return a\n"), 4)) == -1_000_007


@thorough
def test_tests_that_look_at_what_it_does_notice_that_it_is_undone(require: Require) -> None:
    require("bwrap", "makes the sandbox")

    async def ended(source: str, folder: Path) -> list[Any]:
        skill = write_skill(folder / "say-it", {"scripts/main.py": source, "tests/test_main.py": TESTS})
        tree = copy_tree(skill, folder / "copy")
        async with ChildProcess() as child:
            manifest, _ = await read_manifest(child, tree, "say-it")
            tools = copy_tools(folder / "tools")
            candidate = Candidate(tree, manifest, load_policy("skill-validate"), tools, folder, child)
            return [each["outcome"] for each in (await candidate.test()).tests()]

    outcomes: list[list[Any]] = []
    for source in (EFFECTS, in_vain(EFFECTS)):
        with tempfile.TemporaryDirectory() as made:  # pytest's own is not for other users, and a sandbox has one
            os.chmod(made, 0o711)
            outcomes.append(asyncio.run(ended(source, Path(made))))
    assert outcomes == [["passed"] * 4, ["failed"] * 3 + ["passed"]]
