"""A registered skill runs as it was proven, or it does not run."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Refused, Unsupported, UsageError
from hermes_exec.guest.core.process_tree import descendants
from hermes_exec_agent.skills.registry.content import ContentChanged
from hermes_exec_agent.skills.registry.counts import RunCounter
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import runner
from hermes_exec_policies.load import load_policy
from tests.rigs.skill_makers import PERSON, registered, report_of, tree_in

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from hermes_exec_agent.skills.run.outcome import SkillOutcome
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)  # the first run of a policy proves it
MAIN = "scripts/main.py"


@pytest.fixture
def sandboxes(require: Require) -> None:
    require("bwrap", "makes the sandbox")


def run(home: RegistryHome, **arguments: Any) -> SkillOutcome:
    return asyncio.run(runner.run(Registry(home), "add-numbers", arguments))


def written(home: RegistryHome, folder: Path, text: str) -> None:
    """Register a skill whose function is ``text``."""
    registered(home, folder, files={MAIN: text})


def test_a_skill_gives_its_result(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path)
    outcome = run(home, a=20, b=22)
    assert (outcome.result, outcome.error, outcome.version, outcome.counts.runs) == (42, "", 1, 1)


def test_what_it_prints_is_its_log_and_what_it_leaves_are_its_files(
    sandboxes: None, home: RegistryHome, tmp_path: Path
) -> None:
    text = """
import os, subprocess, sys
def run(a: int, b: int) -> dict:
    print('printed')
    subprocess.run(['echo', 'by a child'])
    os.chdir('/app/data')
    os.makedirs('out'); open('out/a.txt', 'w').write('content'); os.symlink('/etc/passwd', 'link')
    return {'argv': sys.argv, 'file': __file__}
"""
    written(home, tmp_path, text)
    files = tmp_path / "files"
    outcome = asyncio.run(runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}, files=files))
    path = "/app/skills/add_numbers/scripts/main.py"
    assert outcome.result == {"argv": [path], "file": path}, outcome.logs
    assert sorted(outcome.logs.splitlines()) == ["by a child", "printed"]
    assert ((files / "out/a.txt").read_text(), outcome.files, outcome.left) == (
        "content",
        ("out/a.txt",),
        ("link: a link",),
    )


def test_each_run_has_a_sandbox_of_its_own(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    text = """
import os
def run(a: int, b: int) -> list:
    found = os.listdir('/app/data')
    open('/app/data/left', 'w').close()
    return found
"""
    written(home, tmp_path, text)
    assert [run(home, a=1, b=1).result for _ in range(2)] == [[], []]


@pytest.mark.parametrize(
    ("body", "error", "kind"),
    [
        ("raise ValueError('a  b\\n\\x1b[1mc')", "ValueError: a b ?[1mc", "ValueError"),
        ("raise SystemExit(0)", "SystemExit: 0", "SystemExit"),
        ("import os; os._exit(0)", "no result", "no result"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9", "signal 9"),
        ("return {1, 2}", "TypeError: Object of type set is not JSON serializable", "TypeError"),
        ("return float('nan')", "ValueError: Out of range float values are not JSON compliant", "ValueError"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", "ModuleNotFoundError"),
    ],
)
def test_a_failure_is_told_in_a_line(
    sandboxes: None, home: RegistryHome, tmp_path: Path, body: str, error: str, kind: str
) -> None:
    written(home, tmp_path, f"def run(a: int, b: int) -> object:\n    {body}\n")
    outcome = run(home, a=1, b=2)
    told = outcome.error.removesuffix(": nan")  # which Pythons from 3.12 on add
    assert (told, outcome.kind, outcome.ok, outcome.counts.failures) == (error, kind, False, 1)


@pytest.mark.parametrize(
    "action", ["open('/app/skills/x', 'w')", "open('notes.txt', 'w')", "open(__file__, 'a')", "os.chroot('/')"]
)
def test_all_denials_become_one_clear_line(
    sandboxes: None, home: RegistryHome, tmp_path: Path, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    written(home, tmp_path, f"import os\ndef run(a: int, b: int) -> None:\n    {action}\n")
    outcome = run(home, a=1, b=2)
    assert outcome.denied.startswith("Sandbox Jailbreak: "), outcome
    assert [record.getMessage() for record in caplog.records if "Sandbox Jailbreak" in record.getMessage()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"a": 1}, "'b' is a required property"),
        ({"a": 1, "b": "2"}, r"arguments\['b'\]: '2' is not of type 'integer'"),
        ({"a": 1, "b": 2, "c": 3}, "'c' was unexpected"),
    ],
)
def test_arguments_that_it_does_not_take_start_nothing(
    home: RegistryHome, tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    registered(home, tmp_path)
    with pytest.raises(UsageError, match=said):
        run(home, **arguments)


def test_a_folder_for_its_files_that_cannot_be_made_is_noticed_before_it_runs(
    home: RegistryHome, tmp_path: Path
) -> None:
    registered(home, tmp_path)
    with pytest.raises(UsageError, match="/none: there is no such folder"):
        runner.resolve_run(Registry(home), "add-numbers", {"a": 1, "b": 2}, files=tmp_path / "none/x")


def test_one_changed_byte_is_refused_and_kept_back(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    version = registered(home, tmp_path)
    file = home.content / version.digest / MAIN
    good = file.read_bytes()
    file.write_bytes(good.replace(b"a + b", b"a - b"))
    with pytest.raises(ContentChanged, match="scripts/main.py: its bytes were changed"):
        run(home, a=1, b=2)
    file.write_bytes(good)
    with pytest.raises(Refused, match="quarantine: changed"):
        run(home, a=1, b=2)
    Registry(home).release("add-numbers")
    assert run(home, a=1, b=2).result == 3


def test_a_sandbox_that_was_made_for_changed_files_is_gone(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    version = registered(home, tmp_path)

    async def left() -> set[int]:
        await runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2})
        before = {*descendants([os.getpid()])}
        with (home.content / version.digest / MAIN).open("ab") as file:
            file.write(b"#")
        with pytest.raises(ContentChanged):
            await runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2})
        return {*descendants([os.getpid()])} - before

    assert asyncio.run(left()) == set()


def test_another_policy_is_refused_and_kept_back(
    home: RegistryHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config/hermes_exec/policies/own.toml"
    file.parent.mkdir(parents=True)
    file.write_text('extends = "skill-run"\n')
    policy = load_policy("own")
    tree = tree_in(tmp_path)
    report = report_of(tree, policy="own", policy_digest=policy.digest)
    Registry(home).register(tree, report, policy, author=PERSON, kernel=os.uname().release)
    file.write_text('extends = "skill-run"\n[limits]\nopen_files = 257\n')
    with pytest.raises(Refused, match="that was changed since"):
        run(home, a=1, b=2)
    with pytest.raises(Refused, match="quarantine: the policy own was changed"):
        run(home, a=1, b=2)


@pytest.mark.parametrize("fields", [{"kernel": "1.0"}, {"interpreter": "another"}])
def test_another_kernel_or_interpreter_is_refused_until_it_is_proven_anew(
    home: RegistryHome, tmp_path: Path, fields: dict[str, str]
) -> None:
    version = registered(home, tmp_path)
    registry = Registry(home)
    report = report_of(tree_in(tmp_path / "again"))
    if "kernel" in fields:
        registry.record_proof(version, report, load_policy("skill-run"), kernel="1.0")
    else:
        import dataclasses

        assert report.evidence is not None
        other = dataclasses.replace(report.evidence, interpreter="another")
        shown = dataclasses.replace(report, evidence=other)
        registry.record_proof(version, shown, load_policy("skill-run"), kernel=os.uname().release)
    with pytest.raises(Refused, match=f"another {next(iter(fields))}"):
        run(home, a=1, b=2)
    assert registry.skill("add-numbers").state == "ready"


def test_an_archived_skill_does_not_run(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path)
    Registry(home).mark("archived", "add-numbers")
    with pytest.raises(Refused, match="archived"):
        run(home, a=1, b=2)


def test_a_person_has_to_agree_to_what_only_tested_itself(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    import dataclasses

    from hermes_exec_policies.gate.verdict import Level

    tree = tree_in(tmp_path)
    report = report_of(tree)
    assert report.evidence is not None
    weak = dataclasses.replace(report, evidence=dataclasses.replace(report.evidence, level=Level.SELF_TESTED))
    Registry(home).register(tree, weak, load_policy("skill-run"), author=PERSON, kernel=os.uname().release)
    with pytest.raises(Refused, match="self-tested"):
        run(home, a=1, b=2)
    outcome = asyncio.run(runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}, self_tested=True))
    assert (outcome.result, outcome.level) == (3, "self-tested")


def test_what_keeps_failing_is_kept_back(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    written(home, tmp_path, "def run(a: int, b: int) -> float:\n    return a / b\n")
    assert run(home, a=1, b=1).ok
    outcomes = [run(home, a=1, b=0) for _ in range(runner.FAILURES)]
    assert [each.quarantined for each in outcomes] == [False] * (runner.FAILURES - 1) + [True]
    with pytest.raises(Refused, match=f"failed {runner.FAILURES} times in a row"):
        run(home, a=1, b=1)


def test_without_a_sandbox_it_does_not_run(home: RegistryHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(home, tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises((Unsupported, ConnectionError)):
        run(home, a=1, b=2)


def test_the_registry_is_seen_by_no_skill(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    paths = [str(home.folder), str(home.keys)]
    text = f"import os\ndef run(a: int, b: int) -> list:\n    return [os.path.exists(path) for path in {paths}]\n"
    written(home, tmp_path, text)
    assert run(home, a=1, b=2).result == [False, False]


def test_a_folder_that_holds_the_registry_exposes_it(home: RegistryHome, tmp_path: Path) -> None:
    home.prepare()
    link = tmp_path / "link"
    link.symlink_to(home.folder)
    shown = [str(tmp_path), str(home.content), str(link), "/"]
    assert [home.find_exposed(["/usr", each]) for each in shown] == shown
    assert not home.find_exposed(["/usr", str(tmp_path / "other")])


def test_nothing_of_a_run_is_left(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    import glob

    before = set(glob.glob("/tmp/hx-skill-*"))
    registered(home, tmp_path)
    seen = run(home, a=1, b=2)
    assert seen.ok
    assert not [path for path in set(glob.glob("/tmp/hx-skill-*")) - before if os.path.exists(path) and _ours(path)]


def _ours(path: str) -> bool:
    """Whether nobody holds it: another process's run may have begun meanwhile."""
    import fcntl

    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def test_runs_are_counted_by_version_and_by_the_model_that_asked(
    sandboxes: None, home: RegistryHome, tmp_path: Path
) -> None:
    written(home, tmp_path, "def run(a: int, b: int) -> float:\n    return a / b\n")
    for divisor, model in ((1, "one-model"), (0, "one-model"), (2, "another"), (1, "")):
        asyncio.run(runner.run(Registry(home), "add-numbers", {"a": 4, "b": divisor}, model=model))
    counts = RunCounter(home.counts).read("add-numbers", 1)
    assert counts.by_model == {"one-model": (2, 1), "another": (1, 0), "": (1, 0)}
    assert (counts.runs, counts.failures, counts.in_a_row) == (4, 1, 0)
    assert RunCounter(home.counts).read("add-numbers", 2).runs == 0


def test_failures_in_a_row_end_with_a_success_and_old_latencies_are_forgotten(tmp_path: Path) -> None:
    runs = RunCounter(tmp_path / "runs.sqlite")
    assert [runs.count("x", 1, 1.0, kind).in_a_row for kind in ("a", "b", "", "c")] == [1, 2, 0, 1]
    for _ in range(100):
        runs.count("x", 1, 2.0, "")
    assert (runs.read("x", 1).median_s, runs.read("x", 1).slowest_s, runs.read("x", 1).runs) == (2.0, 2.0, 104)
