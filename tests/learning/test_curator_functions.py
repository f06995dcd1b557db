"""Two functions for one purpose are merged if the gate proves that one passes the cases of both."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.skills.registry.admission import admit
from hermes_exec_agent.skills.registry.record import Author
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.record import Version
    from tests.conftest import Require
    from tests.rigs.curator_library import Library

_AUTHOR = Author(kind="agent", model="m", shells=("docker",))


def write(folder: Path, name: str, code: str, test: str) -> Path:
    root = folder / name
    texts = {
        "SKILL.md": f"---\nname: {name}\ndescription: Combines two whole numbers into one.\n---\nCall `run(a, b)`.\n",
        "scripts/main.py": f'def run(a: int, b: int) -> int:\n    """Combine two numbers."""\n    return {code}\n',
        "tests/test_main.py": "import pathlib\nimport sys\n\n"
        "sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'scripts'))\n"
        f"import main\n\n\ndef test_combines():\n    assert {test}\n",
    }
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def add(library: Library, name: str, code: str, test: str, case: Case) -> Version:
    source = write(library.folder, name, code, test)
    admitted = asyncio.run(admit(library.registry, source, author=_AUTHOR, cases=[case]))
    assert admitted.version is not None, admitted.report.reasons
    return admitted.version


@thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_functions_are_merged_only_with_a_proof_for_the_cases_of_both(require: Require, library: Library) -> None:
    require("bwrap", "makes the sandbox")
    one = add(library, "sum-two", "a + b", "main.run(1, 2) == 3", Case([4, 5], 9, Level.PERSON))
    two = add(library, "add-two", "b + a", "main.run(2, 2) == 4", Case([7, 5], 12, Level.PERSON))
    result = asyncio.run(library.curator().run(apply=True))
    assert (result.merged, result.advice, library.archived()) == (["add-two into sum-two 2"], [], {"add-two"})
    merged = library.registry.version("sum-two")
    assert (merged.parents, merged.level, merged.is_function) == ((one.digest, two.digest), "person", True)
    held = [each["arguments"] for each in merged.evidence["evidence"]["held"]]
    assert [4, 5] in held
    assert [7, 5] in held
    add(library, "times-two", "a * b", "main.run(3, 2) == 6", Case([4, 5], 20, Level.PERSON))
    before = library.states()
    result = asyncio.run(library.curator().run(apply=True))
    assert (result.merged, library.states()) == ([], before)
    assert "the gate did not accept it" in result.advice[0]
