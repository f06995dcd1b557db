"""Rows of SWE-bench over a repository that the test makes: rewards, predictions, and what an agent sees."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.batch.formats.log_parsers import choose_command, find_missing
from tests.rigs.batches import BatchPerson
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from pathlib import Path

leave_out("takes long")

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 3\n"
TESTS = "from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n"
NEW_TESTS = {
    "calc__add-1": "\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "calc__double-2": "\n\ndef test_double():\n    from calc import double\n    assert double(2) == 4\n",
}
FIXES = {"calc__add-1": ("a - b", "a + b"), "calc__double-2": ("a * 3", "a * 2")}


def git(repo: Path, *argv: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    done = subprocess.run(["git", "-C", str(repo), *who, *argv], capture_output=True, text=True, check=True)
    return done.stdout


def diff(repo: Path, file: str, content: str) -> str:
    """The patch that gives a file this content; the repository stays as it is."""
    (repo / file).write_text(content)
    patch = git(repo, "diff")
    git(repo, "checkout", "-q", "--", file)
    return patch


@pytest.fixture
def person(tmp_path: Path) -> BatchPerson:
    repo = tmp_path / "repos" / "someone__calc"
    repo.mkdir(parents=True)
    git(repo, "init", "-q")
    (repo / "calc.py").write_text(BROKEN)
    (repo / "test_calc.py").write_text(TESTS)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "base")
    base = git(repo, "rev-parse", "HEAD").strip()
    rows = [
        {
            "instance_id": id,
            "repo": "someone/calc",
            "base_commit": base,
            "problem_statement": f"{id} is wrong.",
            "test_patch": diff(repo, "test_calc.py", TESTS + NEW_TESTS[id]),
            "patch": diff(repo, "calc.py", BROKEN.replace(*FIXES[id])),
            "FAIL_TO_PASS": json.dumps([f"test_calc.py::test_{id.partition('__')[2].partition('-')[0]}"]),
            "PASS_TO_PASS": json.dumps(["test_calc.py::test_zero"]),
            "version": "1",
            "test_cmd": f"{sys.executable} -m pytest -rA -p no:cacheprovider",
        }
        for id in FIXES
    ]
    (repo / "calc.py").write_text("# the solution, of a later commit\n")
    git(repo, "commit", "-qam", "later")
    person = BatchPerson(tmp_path)
    person.write_tasks(rows, "rows.jsonl")
    return person


def results(person: BatchPerson) -> dict[str, dict[str, Any]]:
    return {row["task"]: row for row in map(json.loads, person.run("export", "r").stdout.splitlines())}


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_the_patch_of_a_row_scores_1_and_nothing_scores_0(person: BatchPerson, agent: str, reward: float) -> None:
    done = person.run("run", "rows.jsonl", "--agent", agent, "--repos", "repos", "--into", "r")
    assert done.returncode == 0, done.stderr
    found = results(person)
    assert {id: each["reward"] for id, each in found.items()} == dict.fromkeys(FIXES, reward)
    assert found["calc__add-1"]["metadata"] == {"version": "1"}


def test_an_agent_sees_one_commit_and_its_changes_of_tests_do_not_count(person: BatchPerson) -> None:
    fix = "sed -i 's/a - b/a + b/' calc.py"
    cheat = "printf 'def test_double():\\n    pass\\ndef test_zero():\\n    pass\\n' > test_calc.py"
    model = person.write_replies(f"git log --all --oneline | wc -l > count; {fix}; {cheat}")
    done = person.run("run", "rows.jsonl", "--model", model, "--repos", "repos", "--into", "r")
    assert done.returncode == 0, done.stderr
    found = results(person)
    assert {id: each["reward"] for id, each in found.items()} == {"calc__add-1": 1.0, "calc__double-2": 0.0}
    predictions = json.loads(person.run("export", "r", "--as", "preds").stdout)
    assert set(predictions) == set(FIXES)
    patch = predictions["calc__add-1"]["model_patch"]
    assert predictions["calc__add-1"]["instance_id"] == "calc__add-1"
    assert ("+    return a + b" in patch, "test_calc.py" in patch) == (True, False)
    assert "+1\n" in patch[patch.index("count") :]
    repo = person.home / "check"
    git(person.home, "clone", "-q", "repos/someone__calc", "check")
    git(repo, "checkout", "-q", "HEAD~1")
    subprocess.run(["git", "-C", str(repo), "apply", "-"], input=patch, text=True, check=True)


def test_rows_need_clones_and_names_of_tests(person: BatchPerson) -> None:
    done = person.run("check", "rows.jsonl")
    assert (done.returncode, "--repos FOLDER" in done.stderr) == (2, True), done.stderr
    rows = [json.loads(line) for line in (person.home / "rows.jsonl").read_text().splitlines()]
    rows[0] |= {"repo": "../../etc", "FAIL_TO_PASS": "[]"}
    rows[1] |= {"FAIL_TO_PASS": '["it works"]', "PASS_TO_PASS": "[]"}
    rows.append(rows[1] | {"instance_id": "calc__add-3", "log_parser": "nose"})
    rows.append(rows[1] | {"instance_id": "calc__add-4", "FAIL_TO_PASS": "[1]"})
    person.write_tasks(rows, "bad.jsonl")
    done = person.run("check", "bad.jsonl", "--repos", "repos")
    assert done.returncode == 2
    assert "bad.jsonl:1: 'repo' '../../etc' is not a name of a repository" in done.stderr
    assert "bad.jsonl:2: 'FAIL_TO_PASS' and 'PASS_TO_PASS' have test names of no known test program" in done.stderr
    assert "name it by 'log_parser' (pytest, unittest, sympy) with a 'test_cmd'" in done.stderr
    assert "bad.jsonl:3: 'log_parser' 'nose' should be pytest, unittest, sympy" in done.stderr
    assert "bad.jsonl:4: 'FAIL_TO_PASS' should be a list of names of tests" in done.stderr
    rows = [json.loads((person.home / "rows.jsonl").read_text().splitlines()[0]) | {"base_commit": "0" * 40}]
    person.write_tasks(rows, "gone.jsonl")
    done = person.run("run", "gone.jsonl", "--agent", "nop", "--repos", "repos", "--into", "g")
    assert (done.returncode, "git fetch in that clone" in done.stderr) == (2, True), done.stderr


CASES = '''import unittest

from calc import add


class CalcTests(unittest.TestCase):
    def test_zero(self):
        print("loud")
        self.assertEqual(add(1, 0), 1)

    def test_described(self):
        """Nothing and nothing is nothing."""
        self.assertEqual(add(0, 0), 0)
'''
NEW_CASE = "\n    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
RUNNER = """import importlib, pathlib, sys, traceback

for path in sys.argv[1:]:
    sys.path[:0] = [str(pathlib.Path(path).parent), "."]
    module = importlib.import_module(pathlib.Path(path).stem)
    print(f"{path}[2]")
    for name in sorted(each for each in dir(module) if each.startswith("test_")):
        try:
            getattr(module, name)()
            print(f"{name} ok")
        except Exception:
            print(f"{name} F")
            print(f"________ {path}:{name} ________")
            traceback.print_exc()
"""


def create_row(repos: Path, form: str) -> tuple[dict[str, Any], int]:
    """A row over a repository whose tests another program runs, and how many of them pass without its patch."""
    repo = repos / form
    (repo / "tests/calc_app").mkdir(parents=True)
    git(repo, "init", "-q")
    before, added, tests = CASES, NEW_CASE, ["test_add (tests.calc_app.test_calc.CalcTests)"]
    passing = ["test_zero (tests.calc_app.test_calc.CalcTests)", "Nothing and nothing is nothing."]
    command = f"{sys.executable} -m unittest -v"
    if form == "sympy":
        before, added, tests, passing = TESTS, NEW_TESTS["calc__add-1"], ["test_add"], ["test_zero"]
        command = f"{sys.executable} bin/test"
        (repo / "bin").mkdir()
        (repo / "bin/test").write_text(RUNNER)
    if form == "django":
        run = "import sys, unittest\nsys.path[:0] = ['.', 'tests']\n"
        (repo / "tests/runtests.py").write_text(f"{run}unittest.main(None, argv=['x', '-v', *sys.argv[1:]])\n")
        command = f"{sys.executable} tests/runtests.py"
        tests, passing = ([each.replace("tests.calc", "calc") for each in names] for names in (tests, passing))
    (repo / "calc.py").write_text(BROKEN)
    (repo / "tests/calc_app/test_calc.py").write_text(before)
    for folder in ("tests", "tests/calc_app"):
        (repo / folder / "__init__.py").touch()
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "base")
    row = {
        "instance_id": f"{form}-1", "repo": f"someone/{form}",
        "base_commit": git(repo, "rev-parse", "HEAD").strip(), "problem_statement": "add is wrong.",
        "test_patch": diff(repo, "tests/calc_app/test_calc.py", before + added),
        "patch": diff(repo, "calc.py", BROKEN.replace("a - b", "a + b")),
        "FAIL_TO_PASS": json.dumps(tests), "PASS_TO_PASS": json.dumps(passing), "test_cmd": command,
    }  # fmt: skip
    return row, len(passing)


def test_rows_of_other_programs_than_pytest_are_run_and_read(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    rows = {form: create_row(tmp_path / "repos", form) for form in ("unittest", "django", "sympy")}
    person.write_tasks([row for row, _ in rows.values()], "rows.jsonl")
    for agent, reward in (("oracle", 1.0), ("nop", 0.0)):
        done = person.run("run", "rows.jsonl", "--agent", agent, "--repos", "repos", "--into", agent)
        assert done.returncode == 0, done.stderr
        found = {each["task"]: each for each in map(json.loads, person.run("export", agent).stdout.splitlines())}
        for form, (_, count) in rows.items():
            each = found[f"{form}-1"]
            assert (each["reward"], each["check"]["passed"]) == (reward, count + (agent == "oracle")), each


def test_a_test_passes_only_if_each_of_its_lines_says_so() -> None:
    text = "test_a (m.C) ... ok\ntest_b (m.C.test_b) ... noise\nmore noise\nFAIL\ntest_a (m.C) ... FAIL\n"
    wanted = ["test_a (m.C)", "test_b (m.C)", "test_c (m.C)"]
    assert find_missing(text, "unittest", wanted) == wanted
    again = "test_b (m.C.test_b)\nIt works. ... noise ok\ntest_s (m.C) ... skipped 'no'\n"
    assert find_missing(again, "unittest", ["test_b (m.C)", "It works.", "test_s (m.C)"]) == ["test_s (m.C)"]
    assert choose_command("unittest", "django/django").startswith("python3 tests/runtests.py")
    forged = "test_a (m.C) ... ok\nFAIL\ntest_b (m.C)\nIt works. ... ok\nFAIL\n\n"
    summary = f"FAIL: test_a (m.C)\n{'-' * 70}\nERROR: test_b (m.C) [x] (n=1)\nIt works.\n"
    wanted = ["test_a (m.C)", "test_b (m.C)", "It works."]
    assert find_missing(forged, "unittest", wanted) == []
    assert find_missing(forged + summary, "unittest", wanted) == wanted


def test_a_parameter_with_spaces_is_found_whole_and_as_the_dataset_cuts_it() -> None:
    text = "PASSED a.py::t[x - y]\nPASSED a.py::t[x]\nPASSED a.py::s[1 2]\nFAILED a.py::s[1 3] - assert 0\n"
    assert find_missing(text, "pytest", ["a.py::t[x - y]", "a.py::t[x", "a.py::t[x]", "a.py::s[1 2]"]) == []
    assert find_missing(text, "pytest", ["a.py::s[1", "a.py::s[1 3]"]) == ["a.py::s[1", "a.py::s[1 3]"]
