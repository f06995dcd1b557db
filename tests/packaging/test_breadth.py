"""How much of the suite a run takes, by its breadth and its seed, and how the tests are spread over workers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from xdist.workermanage import WorkerController

from hermes_dev import suite
from hermes_dev.place import UsageError
from tests.rigs import breadth, shards
from tests.rigs.breadth import thorough

ROOT = Path(__file__).parents[2]
MANY = """\
import pytest

@pytest.mark.parametrize("number", range(24))
def test_it(number):
    assert number not in {failing}

@pytest.mark.soak
def test_long():
    raise AssertionError
"""


def run_pytest(folder: Path, *arguments: str, **environment: str) -> str:
    """Run a session of its own with the suite's conftest.py; returns what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_DEV_")}
    argv = [sys.executable, "-I", "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(folder)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder, env=kept | environment)
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A module of a folder that the plain run samples."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -m 'not soak'\nmarkers =\n    soak\n    required\n")
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "test_many.py").write_text(MANY.format(failing="set()"))
    return tmp_path


def taken(project: Path, seed: int, *arguments: str, suite: str = "plain") -> set[str]:
    environment = {"HERMES_DEV_SUITE": suite, "HERMES_DEV_SEED": str(seed)}
    return {*re.findall(r"test_\w+\[\d+\]|test_long", run_pytest(project, *arguments, **environment))}


def test_a_seed_chooses_the_sample_of_the_plain_run(project: Path) -> None:
    samples = [taken(project, seed, "--collect-only", "-q") for seed in (1, 1, 2, 3, 4)]
    assert samples[0] == samples[1]
    assert {len(sample) for sample in samples} == {3}
    assert len(set(map(frozenset, samples))) > 1
    assert len(taken(project, 1, "--collect-only", "-q", suite="ci")) in (4, 5)
    assert len(taken(project, 1, "--collect-only", "-q", suite="all")) == 24


def test_ci_takes_a_part_of_a_long_module(project: Path) -> None:
    (project / "other").mkdir()
    (project / "cli" / "test_many.py").rename(project / "other" / "test_many.py")
    assert len(taken(project, 1, "--collect-only", "-q", suite="ci")) == 24
    with (project / "conftest.py").open("a") as file:
        file.write("from tests.rigs import breadth\nbreadth.durations = lambda: {'other/test_many.py::TestA': 15}\n")
    samples = [taken(project, seed, "--collect-only", "-q", suite="ci") for seed in range(6)]
    assert {len(sample) for sample in samples} == {6}
    assert len({name for sample in samples for name in sample}) > 6


def test_a_seed_chooses_the_modules_of_the_plain_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*map(str, range(8)), "hygiene"):
        (tmp_path / f"test_{name}.py").touch()

    def modules(seed: int, *, whole: bool = False) -> set[str]:
        monkeypatch.setattr(breadth, "SEED", seed)
        monkeypatch.setattr(breadth, "WHOLE", whole)
        breadth.choose_modules.cache_clear()
        return {path.name for path in tmp_path.iterdir() if not breadth.is_left_out(path)}

    monkeypatch.setattr(breadth, "OF_MODULES", 4)
    samples = [modules(seed) for seed in (1, 1, 2, 3, 4, 5, 6)]
    assert samples[0] == samples[1]
    assert {len(sample - {"test_hygiene.py"}) for sample in samples} == {2}
    assert {name for sample in samples for name in sample} == modules(1, whole=True)
    assert samples[0] & samples[2] & samples[3] & samples[4] & samples[5] & samples[6] == {"test_hygiene.py"}
    monkeypatch.setattr(breadth, "OF_MODULES", 1)
    assert len(modules(1)) == 9


def test_all_workers_agree_on_the_sample(project: Path) -> None:
    assert taken(project, 2, "-n", "2", "--dist", "loadscope", "-v") == taken(project, 2, "--collect-only", "-q")


def test_a_failure_of_a_sample_names_its_seed(project: Path) -> None:
    (project / "cli" / "test_many.py").write_text(MANY.format(failing="range(24)"))
    said = run_pytest(project, HERMES_DEV_SUITE="plain", HERMES_DEV_SEED="7")
    assert "the samples of this run are repeated with HERMES_DEV_SEED=7" in said.splitlines()[-2]
    assert "3 failed" in said.splitlines()[-1]


def test_a_choice_depends_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breadth, "IN_FULL", False)
    choices: list[list[int]] = []
    for seed in (1, 1, 2):
        monkeypatch.setattr(breadth, "SEED", seed)
        choices.append(breadth.choose("a corpus", range(100), 10))
    assert choices[0] == choices[1] == sorted(choices[0])
    assert choices[0] != choices[2]
    assert breadth.choose("a corpus", range(5), 10) == [*range(5)]
    monkeypatch.setattr(breadth, "IN_FULL", True)
    assert breadth.choose("a corpus", range(100), 10) == [*range(100)]


@thorough
def test_behaviours_of_the_guest_run_once_for_each_kind_of_guest() -> None:
    columns = [f"tests/conformance/test_{name}.py" for name in ("local", "guest_pythons", "ssh", "docker", "modal")]
    seen: dict[str, dict[str, set[str]]] = {"ci": defaultdict(set), "all": defaultdict(set)}
    for name, shown in seen.items():
        argv = [sys.executable, "-I", "-m", "pytest", "--collect-only", "-q", "-m", "guest", *columns]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_DEV_")}
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, cwd=ROOT, env=kept | {"HERMES_DEV_SUITE": name}
        )
        for column, behaviour in re.findall(r"::(Test\w+)::(\w+)", done.stdout):
            shown[column].add(behaviour)
    every = seen["all"]["TestLocal"]
    assert len(every) > 90
    in_ci, in_all = seen["ci"], seen["all"]
    assert in_ci["TestLocal"] == in_ci["TestSsh"] == in_ci["TestOldestPython"] == every
    assert not in_ci["TestDocker"] | in_ci["TestModal"]
    assert in_all["TestDocker"] == in_all["TestModal"] == every
    assert set() < in_ci["TestModalPlain"] <= in_all["TestModalPlain"]


def test_each_module_has_a_shard() -> None:
    paths = [str(path.relative_to(ROOT)) for path in ROOT.glob("tests/*/test_*.py")]
    assert {shards.shard_of(path) for path in paths} == set(shards.SHARDS)
    assert shards.shard_of("tests/conformance/test_chain_docker.py") == "containers"
    assert shards.shard_of("tests/conformance/test_modal.py") == "clouds"
    assert shards.shard_of("tests/conformance/test_local.py") == "core"


def test_a_unit_is_what_shares_fixtures() -> None:
    assert shards.unit_of("tests/a/test_b.py::test_c[d::e]") == "tests/a/test_b.py"
    assert shards.unit_of("tests/a/test_b.py::TestC::test_d") == "tests/a/test_b.py::TestC"


class Worker(WorkerController):
    """What the scheduler sees of a worker, which keeps what it is given."""

    gateway = SimpleNamespace(id="a worker")
    shutting_down = False

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        pass


def test_workers_take_the_longest_units_of_their_shard_first(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"tests/docker/test_a.py": 9.0, "tests/docker/test_b.py": 99.0, "tests/gate/test_a.py": 50.0}
    monkeypatch.setattr(shards, "durations", lambda: seconds)
    monkeypatch.setattr("xdist.scheduler.loadscope.parse_tx_spec_config", name_workers)
    tests = [f"{unit}::test_{number}" for unit in seconds for number in range(4)]
    order = assign(pytestconfig, tests, workers=2)
    assert order[0] == [*tests[4:8], *tests[:4]]
    assert order[1] == tests[8:]
    short = assign(pytestconfig, tests, workers=2, one_in={"tests/docker/test_b.py": 20})
    assert short[0][:4] == tests[8:]
    assert short[1][:4] == tests[:4]


def name_workers(_config: pytest.Config) -> list[str]:
    """Two workers, as ``-n 2`` has them."""
    return ["popen", "popen"]


def assign(
    config: pytest.Config, tests: list[str], workers: int, one_in: Mapping[str, int] | None = None
) -> list[list[str]]:
    """The tests that each worker gets, in their order, when all take equally long."""
    scheduler = shards.ShardScheduling(config, one_in=lambda module: (one_in or {}).get(module, 1))
    nodes = [Worker() for _ in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, [*tests])
    scheduler.schedule()
    for turn in range(len(tests)):
        for node in nodes:
            if turn < len(node.given):
                scheduler.mark_test_complete(node, node.given[turn])
    given = [[tests[index] for index in node.given] for node in nodes]
    assert sorted(test for each in given for test in each) == sorted(tests)
    return given


def test_the_options_of_dev_test_are_told_from_those_of_pytest() -> None:
    assert suite.parse([]).breadth == "plain"
    assert suite.parse(["--provision"]).breadth == "ci"
    assert suite.parse(["--provision", "--all"]).breadth == "all"
    named = suite.parse(["--python=3.13", "-k", "timeout", "--shard", "gate"])
    assert (named.python, named.shard, named.pytest, named.breadth) == ("3.13", "gate", ["-k", "timeout"], "all")
    with pytest.raises(UsageError, match="--python needs a value"):
        suite.parse(["--python"])


def test_another_python_is_found_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert suite.find_python(f"{sys.version_info.major}.{sys.version_info.minor}")
    for version, said in (("3.99", "this machine has no Python 3.99"), ("3.6", "supports 3.11"), ("x", "supports")):
        with pytest.raises(UsageError, match=said):
            suite.find_python(version)


def test_a_job_of_the_workflow_runs_each_python_and_one_every_engine() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    offered = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    (versions,) = re.findall(r"python: \[(.*)\]", text)
    assert re.findall(r"[\d.]+", versions) == offered
    assert "run: .ci/run" in text
    assert "permissions:\n  contents: read\n" in text
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", each) for each in re.findall(r"uses: (\S+)", text))
    assert "://" not in text
