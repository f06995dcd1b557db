"""From a task to a registered skill, through the real gate; and every way in which it does not get there."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.skills.build.builder import NotRegistered, Rejected
from hermes_exec_agent.skills.build.draft import parse_draft
from hermes_exec_agent.skills.run import runner
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level
from tests.build.conftest import NO_CASES, SCRIPT, Made, draft, workshop
from tests.rigs.breadth import leave_out
from tests.rigs.skill_makers import home_in, registered

if TYPE_CHECKING:
    from pathlib import Path

leave_out("takes long")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("sandboxes")]
BEGUN = ["[Core] No tool found for task...", "[Compiler] Drafting 'generate_csv_report.py'..."]
DONE = [
    "[Sandbox] Executing validation suite... Exit code: 0",
    "[Core] Skill 'generate_csv_report' successfully registered.",
]
EMPTY = {"report.csv": {"equals": "Product,Revenue\n"}}
CASE = Case({"rows": []}, {"headers": ["Product", "Revenue"], "rows": 0}, Level.PERSON, files=EMPTY)
FILLED = Case(
    {"rows": [{"Product": "c", "Revenue": 3}]},
    {"headers": ["Product", "Revenue"], "rows": 1},
    Level.PERSON,
    files={"report.csv": {"equals": "Product,Revenue\nc,3\n"}},
)
BROKEN = SCRIPT.replace("file:\n        writer = csv", "file\n        writer = csv")
MISSING = SCRIPT.replace("import csv\n", "import csv\n\nimport no_such_module_anywhere\n")
OUTSIDE = SCRIPT.replace("/app/data/report.csv", "/app/report.csv")


def test_a_task_becomes_a_skill_that_runs(tmp_path: Path) -> None:
    made = workshop(tmp_path, [draft()], [CASE, FILLED])
    version = made.compile()
    assert made.lines == BEGUN + DONE
    assert (version.name, version.number, version.level) == ("generate-csv-report", 1, "person")
    assert (version.author.kind, version.author.model, version.protection) == ("agent", "scripted", "protected")
    rows = [{"Product": "b", "Revenue": 2}]
    ran = asyncio.run(runner.run(made.shop.registry, version.name, {"rows": rows}, files=tmp_path / "data"))
    assert ran.result == {"headers": ["Product", "Revenue"], "rows": 1}
    assert (tmp_path / "data/report.csv").read_text().split() == ["Product,Revenue", "b,2"]


def test_a_report_among_the_skills_is_a_mistake_that_is_repaired(tmp_path: Path) -> None:
    misplaced = SCRIPT.replace("/app/data/report.csv", "/app/skills/report.csv")
    made = workshop(tmp_path, [draft(misplaced), draft()], [CASE])
    assert made.compile().number == 1
    told = [request.messages[-1].content for request in made.model.requests]
    assert "it writes to /app/skills/report.csv; a run writes below /app/data alone" in told[1]


def test_a_syntax_error_then_a_missing_module_then_a_write_outside_are_mended_one_by_one(tmp_path: Path) -> None:
    made = workshop(tmp_path, [draft(BROKEN), draft(MISSING), draft(OUTSIDE), draft()], [CASE])
    assert made.compile().number == 1
    told = [request.messages[-1].content for request in made.model.requests]
    assert "not Python" in told[1]
    assert "no module no_such_module_anywhere" in told[2]
    assert "/app/report.csv cannot be used; a run writes below /app/data alone" in told[3]
    assert made.lines[-2:] == DONE
    assert len([line for line in made.lines if "Sandbox Jailbreak" in line]) == 1


def test_at_the_third_failed_repair_there_is_an_error_with_every_attempt_and_no_skill(tmp_path: Path) -> None:
    replies = ["I would rather not.", draft(BROKEN), draft(packages=["csv"]), draft(MISSING), draft()]
    made = workshop(tmp_path, replies, [CASE])
    with pytest.raises(NotRegistered, match="not registered after 4 attempts") as failed:
        made.compile()
    assert [each.number for each in failed.value.attempts] == [1, 2, 3, 4]
    assert "nothing was registered" in failed.value.state
    assert made.skills == []
    with pytest.raises(NotRegistered):  # nor by asking once more
        made.compile()
    assert made.model.left == 1


def test_the_same_diagnosis_twice_ends_it(tmp_path: Path) -> None:
    made = workshop(tmp_path, [draft(BROKEN), draft(BROKEN), draft()], [CASE])
    with pytest.raises(NotRegistered, match="the same as before") as failed:
        made.compile()
    assert len(failed.value.attempts) == 2
    assert (made.skills, made.model.left) == ([], 1)


CHEATS = {
    "reads a key": SCRIPT.replace("    if any", "    open('/home/somebody/.ssh/id_ed25519').read()\n    if any"),
    "opens a socket": SCRIPT.replace("import csv\n", "import csv\nimport socket\n").replace(
        "    if any", "    socket.create_connection(('192.0.2.1', 80))\n    if any"
    ),
}


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=list(CHEATS))
def test_an_attack_ends_it_at_once_and_tells_the_model_nothing(
    tmp_path: Path, cheat: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = workshop(tmp_path, [draft(cheat), draft()], [CASE])
    with pytest.raises(NotRegistered, match="refused for security") as failed:
        made.compile()
    assert failed.value.security
    assert made.skills == []
    (attempt,) = failed.value.attempts
    for word in ("ssh", "socket", "_exit", "pytest", "scripts/", "API_KEY"):
        assert word not in str(failed.value)
        assert word not in " ".join(attempt.reasons)
    assert any("generate-csv-report" in record.message for record in caplog.records)  # the person has all of it
    with pytest.raises(NotRegistered):
        made.compile()
    assert made.model.left == 1


def test_examples_of_the_request_are_cases_and_the_model_never_reads_what_a_case_expects(tmp_path: Path) -> None:
    request = 'Slugs, please: make_slug("A  B") -> "a-b" and make_slug(text="x") == "x".'
    script = 'def make_slug(text: str) -> str:\n    """Make a slug."""\n    return {}\n'
    tests = "import make_slug\n\n\ndef test_one():\n    assert make_slug.make_slug('A') == 'a'\n"
    first = draft(script.format("text.lower()"), tests)
    good = draft(script.format("'-'.join(text.lower().split())"), tests)
    made = workshop(tmp_path, [first, NO_CASES, good])
    version = made.compile("make-slug", "Make slugs", request)
    assert version.level == "self-tested"  # the model that wrote it has read them
    assert "a case that is not in its tests does not hold" in made.model.requests[2].messages[-1].content
    assert version.evidence["evidence"]["cases"] == 2


def adding(tmp_path: Path, replies: list[str], **maker: Any) -> Made:
    """A workshop whose registry has a skill already."""
    registered(home_in(tmp_path), tmp_path / "made")
    return workshop(tmp_path, replies, **maker)


ADD = '''def add_numbers(a: int, b: int) -> int:
    """Add two whole numbers."""
    if not isinstance(a, int) or not isinstance(b, int):
        raise TypeError("a and b are whole numbers")
    return a + b
'''
ADD_TESTS = "import add_numbers\n\n\ndef test_sum():\n    assert add_numbers.add_numbers(1, 2) == 3\n"


def test_a_skill_that_failed_in_use_becomes_a_new_version_which_a_separate_context_tests(tmp_path: Path) -> None:
    cases = {"cases": [{"arguments": {"a": 20, "b": 22}, "result": 42}, {"arguments": {"a": "no number"}, "result": 1}]}
    made = adding(tmp_path, [draft(ADD, ADD_TESTS), json.dumps(cases)])
    first = made.shop.registry.version("add-numbers")
    second = asyncio.run(made.shop.improve("add_numbers", "a='1' gave TypeError: str and int"))
    assert (second.number, second.parents, second.level) == (2, (first.digest,), "separate")
    wish = made.model.requests[0].messages[1].content
    assert "return a + b" in wish
    assert "gave TypeError: str and int" in wish
    seen = "".join(message.content for message in made.model.requests[1].messages)
    assert "def add_numbers(a: int, b: int) -> int" in seen
    assert "return a + b" not in seen


def test_an_improvement_that_does_not_pass_leaves_the_version_that_is_there(tmp_path: Path) -> None:
    made = adding(tmp_path, [draft(ADD + "\nopen('/etc/shadow')\n", ADD_TESTS), NO_CASES])
    with pytest.raises(NotRegistered):
        asyncio.run(made.shop.improve("add-numbers", "it is slow"))
    assert made.shop.registry.version("add-numbers").number == 1


def test_files_of_an_agent_s_own_pass_the_same_gate_with_the_same_bounds(tmp_path: Path) -> None:
    made = workshop(tmp_path, [], [CASE])
    good = parse_draft(draft()).files("generate-csv-report")
    with pytest.raises(Rejected, match="not Python"):
        asyncio.run(made.shop.submit("generate_csv_report", {**good, "scripts/generate_csv_report.py": BROKEN}))
    with pytest.raises(Rejected, match="out"):
        asyncio.run(made.shop.submit("generate_csv_report", {**good, "../out": "x"}))
    assert made.skills == []


def test_an_agent_without_a_sandbox_registers_nothing_unless_a_person_says_so(tmp_path: Path) -> None:
    asked: list[str] = []

    async def agree(why: str) -> bool:
        asked.append(why)
        return len(asked) > 1

    made = workshop(tmp_path, [draft(BROKEN)] * 2, [CASE], shells=("local",), agree=agree)
    with pytest.raises(Refused, match="without a sandbox"):
        made.compile()
    assert not made.model.requests
    with pytest.raises(NotRegistered):  # they said yes, and the gate says what it says
        made.compile()
    assert "scripted" in asked[0]


def test_a_name_that_is_taken_or_impossible_is_refused_before_a_model_is_asked(tmp_path: Path) -> None:
    made = adding(tmp_path, [])
    with pytest.raises(UsageError, match="already"):
        made.compile("add_numbers")
    for name in ("os", "terminal", "../x", ""):
        with pytest.raises(UsageError, match="not a valid name of a skill"):
            made.compile(name)
    assert not made.model.requests
