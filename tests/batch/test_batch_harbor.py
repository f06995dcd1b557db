"""Tasks in Harbor's format: their folders, their faults, and trials in containers of a real engine."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.batch.formats.grading import CheckFault
from hermes_exec_agent.batch.formats.harbor_box import create_profile
from hermes_exec_agent.batch.formats.harbor_rewards import choose_reward, parse_rewards
from hermes_exec_agent.batch.start import RunArguments, plan_run
from hermes_exec_agent.batch.tasks import TaskFaults, load_tasks
from hermes_exec_agent.batch.trials import Trial
from tests.rigs import daytona_rig
from tests.rigs.batches import BatchPerson
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import leave_out
from tests.rigs.docker_engine import DEBIAN, engine
from tests.rigs.harbor_tasks import REWARD, write_task

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.batch.formats.harbor_spec import BoxSpec

leave_out("takes long")


@pytest.fixture
def person(tmp_path: Path) -> BatchPerson:
    dock = engine()
    dock.image(DEBIAN)
    return BatchPerson(tmp_path, DOCKER_HOST=dock.address)


def results(person: BatchPerson, run: str = "r") -> dict[str, dict[str, Any]]:
    done = person.run("export", run)
    return {row["task"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_the_solution_scores_1_and_nothing_scores_0(person: BatchPerson) -> None:
    for name in ("first", "second"):
        write_task(person.home / "tasks" / name)
    for agent, reward in (("oracle", 1.0), ("nop", 0.0)):
        done = person.run("run", "tasks", "--agent", agent, "--into", agent)
        assert done.returncode == 0, done.stderr
        found = results(person, agent)
        assert {id: each["reward"] for id, each in found.items()} == {"first": reward, "second": reward}
        assert found["first"]["metadata"] == {"level": "easy"}
    assert person.run("run", "tasks/first", "--agent", "oracle", "--into", "one").returncode == 0
    labels = [each["Labels"] for each in engine().client.containers(all=True)]
    assert not [each for each in labels if "hermes" in json.dumps(each)], labels


def test_a_scripted_agent_works_as_the_user_of_the_task(person: BatchPerson) -> None:
    dockerfile = f"FROM {DEBIAN}\nRUN mkdir -p /app && chmod 777 /app\nWORKDIR /app\nUSER sandbox\n"
    owned = '[ "$(stat -c %U /app/out)" = sandbox ] && [ "$(id -un)" = nobody ]'
    test = f"id -un > /logs/verifier/who; {owned} && echo 0.5 > {REWARD}.txt"
    config = (
        'user = "nobody"\n[agent]\ntimeout_sec = 60\n[environment]\ncpus = 1\nmemory_mb = 512\n'
        'network_mode = "no-network"\nenv = {KIND = "small"}\n'
        '[environment.healthcheck]\ncommand = "test -d /logs/agent"\n'
    )
    write_task(person.home / "users", config, test=test, dockerfile=dockerfile)
    model = person.write_replies(
        "id -u; test ! -e /tests && test ! -e /solution && [ $KIND = small ] && echo hello > out"
    )
    done = person.run("run", "users", "--model", model, "--into", "r")
    assert done.returncode == 0, done.stderr
    row = results(person)["users"]
    assert (row["reward"], row["check"]["rewards"]) == (0.5, {"reward": 0.5}), row


ODD_REWARDS = {
    "nan": ("echo nan > /logs/verifier/reward.txt", "not a finite number"),
    "link": ("ln -s /etc/hostname /logs/verifier/reward.txt", "not a regular file"),
    "huge": ("head -c 100000 /dev/zero > /logs/verifier/reward.txt", "more than 65536 bytes"),
    "none": ("true", "wrote no reward"),
    "two": ('echo \'{"a": 1, "b": 2}\' > /logs/verifier/reward.json', "none is named 'reward'"),
    "slow": ("sleep 60", "did not end"),
}


def test_a_reward_that_cannot_be_used_is_no_reward(person: BatchPerson) -> None:
    for name, (script, _) in ODD_REWARDS.items():
        write_task(person.home / "odd" / name, "timeout_sec = 3\n", test=script)
    done = person.run("run", "odd", "--agent", "oracle", "--into", "r")
    found = results(person)
    assert (done.returncode, len(found)) == (1, len(ODD_REWARDS)), done.stderr
    for name, (_, why) in ODD_REWARDS.items():
        assert (found[name]["state"], found[name]["reward"]) == ("ungraded", None), found[name]
        assert why in found[name]["reason"]


def test_an_agent_leaves_no_reward_and_no_tests_of_its_own(person: BatchPerson) -> None:
    write_task(person.home / "cheat")
    reward = f"echo 1 > {REWARD}.json"
    model = person.write_replies(f"mkdir -p /tests /logs/verifier; {reward}; echo '{reward}' > /tests/test.sh")
    assert person.run("run", "cheat", "--model", model, "--into", "r").returncode == 0
    assert results(person)["cheat"]["reward"] == 0.0


def test_a_variable_is_passed_only_if_the_person_says_so_and_is_in_no_record(person: BatchPerson) -> None:
    config = '[environment]\nenv = {SEEN = "${TOKEN_OF_TASK}", OTHER = "${UNSET:-none}"}\n'
    write_task(person.home / "secretive", config, test='echo "$SEEN $OTHER"; echo 1 > /logs/verifier/reward.txt')
    done = person.run("run", "secretive", "--agent", "nop", "--into", "r")
    assert (done.returncode, "--pass-env TOKEN_OF_TASK" in done.stderr) == (2, True), done.stderr
    person.environ["TOKEN_OF_TASK"] = "tok-0123456789abcdef"
    model = person.write_replies('echo "seen: $SEEN $OTHER"')
    done = person.run("run", "secretive", "--model", model, "--pass-env", "TOKEN_OF_TASK", "--into", "r")
    assert done.returncode == 0, done.stderr
    assert person.environ["TOKEN_OF_TASK"] not in done.stderr
    content = b"".join(path.read_bytes() for path in (person.home / "r").rglob("*") if path.is_file())
    assert b"tok-0123456789abcdef" not in content
    assert b"seen: [secret TOKEN_OF_TASK] none" in content


def test_every_fault_is_named_before_anything_starts(tmp_path: Path) -> None:
    config = '[agent]\nallowed_hosts = ["a"]\n[environment]\ngpus = 1\nos = "windows"\nunknown = 1\n'
    tasks = tmp_path / "tasks"
    write_task(tasks / "one", config)
    write_task(tasks / "two", '[environment]\ngpus = 1\nos = "windows"\nnetwork_mode = "allowlist"\n')
    write_task(tasks / "three")
    (tasks / "three/environment/docker-compose.yaml").write_text("x")
    (tasks / "three/tests/test.sh").unlink()
    write_task(tasks / "four")
    (tasks / "four/environment/key").symlink_to("/etc/passwd")
    write_task(tasks / "five")
    (tasks / "five/instruction.md").write_bytes(b"\xff\xfe")
    write_task(tasks / "six")
    os.mkfifo(tasks / "six/tests/pipe")
    steps = "artifacts = ['../x']\nname = 'a'\n[[steps.verifier.collect]]\ncommand = 'x'\nservice = 'db'\n"
    write_task(tasks / "seven", f"[[steps]]\n{steps}[[steps]]\nname = 'A'\n[[steps]]\nname = '..'\n")
    hosts = 'network_mode = "allowlist"\nallowed_hosts = ["10.0.0.0/8", "example.org"]\n'
    write_task(tasks / "nine", f"environment_mode = 'shared'\n[verifier.environment]\ncpus = 1\n[environment]\n{hosts}")
    (tasks / "eight").mkdir()
    (tasks / "eight/task.toml").write_text("a = = 1")
    with pytest.raises(TaskFaults) as found:
        load_tasks(str(tasks))
    text = str(found.value)
    for part in (
        "one/task.toml: 'environment': unknown key",
        "two/task.toml: 'environment.gpus' is not supported", "'environment.os' 'windows'",
        "'environment.allowed_hosts' is missing", "three/environment/docker-compose.yaml: several containers",
        "three/tests/test.sh: it is missing", "four: it has a link that leads out of it: environment/key",
        "five/instruction.md: byte 1 is not valid UTF-8", "six: it has an entry that is neither a file nor a folder",
        "'steps[1].artifacts' '../x' should be an absolute path", "'steps[1].verifier.collect' names the service 'db'",
        "'steps[2].name' 'A' occurs twice", "'steps[3].name' '..' should be letters",
        "'environment.allowed_hosts' 'example.org' is not supported: no target restricts names of hosts",
        "'verifier.environment' needs 'environment_mode' 'separate'", "eight/task.toml: not TOML",
    ):  # fmt: skip
        assert part in text, (part, text)


def test_rewards_are_finite_numbers() -> None:
    assert parse_rewards(b" 0.25\n", is_json=False) == {"reward": 0.25}
    assert choose_reward(parse_rewards(b'{"accuracy": 1}', is_json=True)) == 1.0
    for text in (b"[1]", b'{"a": true}', b'{"a": "1"}', b"NaN", b'{"a": 1e999}', b"x", b"1" * 400):
        with pytest.raises(CheckFault):
            parse_rewards(text, is_json=True)


def test_a_machine_is_no_place_for_these_tasks(tmp_path: Path) -> None:
    write_task(tmp_path / "one")
    done = BatchPerson(tmp_path).run("run", "one", "--agent", "oracle", "--on", "local")
    assert (done.returncode, "need a container" in done.stderr) == (2, True), done.stderr


STEPS = """schema_version = "1.4"
multi_step_reward_strategy = "mean"
artifacts = ["/app/out"]
[verifier]
env = {BASE = "yes"}
[[steps]]
name = "first"
artifacts = [{source = "/app/notes", destination = "own/notes", exclude = ["*.tmp"]}]
min_reward = 1
[steps.healthcheck]
command = "test -f /app/ready"
[[steps]]
name = "second"
min_reward = {reward = 0.5}
[steps.verifier]
env = {BASE = "no"}
[[steps]]
name = "third"
"""


def write_steps(folder: Path) -> Path:
    """Write a task with three steps, of which the second one gives too little for the third to begin."""
    write_task(folder, dockerfile=f"FROM {DEBIAN}\nWORKDIR /app\n")
    (folder / "task.toml").write_text(STEPS)
    (folder / "instruction.md").unlink()
    (folder / "tests/test.sh").write_text(
        f'. /tests/want.sh && cat /app/out | grep -qx "$want" && echo 1 > {REWARD}.txt\n'
    )
    for name in ("first", "second", "third"):
        step = folder / "steps" / name
        for each in ("tests", "solution", "workdir"):
            (step / each).mkdir(parents=True)
        (step / "instruction.md").write_text(f"Write {name} into /app/out.\n")
        (step / "tests/want.sh").write_text(f"want={name}\n")
        (step / "solution/solve.sh").write_text(
            f"[ ! -e /tests ] && mkdir -p notes && touch notes/a.tmp notes/b && echo {name} > out\n"
        )
    (folder / "steps/first/workdir/setup.sh").write_text("touch ready\n")
    (folder / "steps/second/tests/test.sh").write_text(
        f'[ "$BASE" = no ] && [ -f /tests/want.sh ] && grep -qx second /app/out && echo 0.25 > {REWARD}.txt\n'
    )
    return folder


def test_steps_run_one_after_the_other_until_one_has_too_little(person: BatchPerson) -> None:
    write_steps(person.home / "many")
    done = person.run("run", "many", "--agent", "oracle", "--into", "r")
    assert done.returncode == 0, done.stderr
    row = results(person)["many"]
    steps = [(each["name"], each["rewards"]["reward"]) for each in row["check"]["steps"]]
    assert (row["reward"], steps) == (0.625, [("first", 1.0), ("second", 0.25)]), row
    (kept,) = (person.home / "r/artifacts").iterdir()
    assert (kept / "steps/first/app/out").read_text() == "first\n"
    assert [each.name for each in (kept / "steps/first/own/notes").iterdir()] == ["b"]
    statuses = {each["source"]: each["status"] for each in json.loads((kept / "steps/first/manifest.json").read_text())}
    assert statuses == {"/logs/artifacts": "empty", "/app/out": "ok", "/app/notes": "ok"}
    model = person.write_replies("cp -r /tests /solution /app/ 2>/dev/null; echo first > out")
    done = person.run("run", "many", "--model", model, "--into", "scripted")
    row = results(person, "scripted")["many"]
    assert (row["state"], "step second: the tests wrote no reward" in row["reason"]) == ("ungraded", True), row
    exported = person.run("export", "scripted", "--as", "openai", "--scripted", "--end", "ungraded")
    assert exported.returncode == 0, exported.stderr


def test_tests_in_a_container_of_their_own_get_the_artifacts_alone(person: BatchPerson) -> None:
    config = (
        'environment_mode = "separate"\n[verifier.environment]\nnetwork_mode = "no-network"\n'
        '[[verifier.collect]]\ncommand = "cp /app/out /logs/artifacts/copy"\n'
    )
    write_task(person.home / "apart", config)
    (person.home / "apart/tests/Dockerfile").write_text(f"FROM {DEBIAN}\nCOPY test.sh /tests/test.sh\n")
    (person.home / "apart/tests/test.sh").write_text(
        f'[ ! -e /app/out ] && [ "$TESTED" = yes ] && grep -qx hello /logs/artifacts/copy && reward=1\n'
        f'echo "${{reward:-0}}" > {REWARD}.txt\n'
    )
    for agent, reward in (("oracle", 1.0), ("nop", 0.0)):
        done = person.run("run", "apart", "--agent", agent, "--into", agent)
        assert done.returncode == 0, done.stderr
        row = results(person, agent)["apart"]
        assert row["reward"] == reward, row
    places = list((person.home / "oracle").glob("shards/s*/log.jsonl"))
    recorded = [json.loads(line) for line in places[0].read_text().splitlines() if '"place"' in line]
    assert len({each["record"]["resource"] for each in recorded}) == 2
    labels = [each["Labels"] for each in engine().client.containers(all=True)]
    assert not [each for each in labels if "hermes" in json.dumps(each)], labels


def test_addresses_are_restricted_where_a_target_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_task(
        tmp_path / "one", '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["10.0.0.1", "10.1.0.0/16"]\n'
    )
    config = tmp_path / "hermes.toml"
    config.write_text(
        "[backends.narrow]\ntype = 'modal'\nallow = ['10.0.0.0/16']\n[backends.shut]\ntype = 'modal'\n"
        "network = 'blocked'\n[backends.wide]\ntype = 'modal'\nallow = ['10.0.0.0/8']\n"
    )
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(config))
    for on, why in (
        ((), "containers here do not restrict"),
        (("docker",), "which it does not restrict"),
        (("narrow",), "that this profile does not allow"),
        (("shut",), "that this profile does not allow"),
    ):
        with pytest.raises(UsageError) as found:
            plan_run(RunArguments(str(tmp_path / "one"), on, agent={"agent": "oracle"}))
        assert why in str(found.value)
    assert plan_run(RunArguments(str(tmp_path / "one"), ("wide",), agent={"agent": "oracle"})).tasks
    profile = create_profile(read_trial(tmp_path / "one", "modal"), read_box(tmp_path / "one"), tmp_path)
    assert getattr(profile, "allow", ()) == ("10.0.0.1/32", "10.1.0.0/16")


@pytest.mark.timeout(120)
def test_a_sandbox_of_daytona_gets_the_addresses_of_its_task(tmp_path: Path) -> None:
    (service,) = daytona_rig.checked()
    write_task(tmp_path / "one", '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["10.1.0.0/16"]\n')
    person = BatchPerson(tmp_path, **{daytona_rig.VARIABLE: os.environ[daytona_rig.VARIABLE]})
    config = tmp_path / ".config/hermes_exec/hermes.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f"[backends.far]\ntype = 'daytona'\nimage = 'python:3.11'\napi_url = '{service.api_url}'\n"
        f"api_key = 'env:{daytona_rig.VARIABLE}'\n"
    )
    process = person.start("run", "one", "--agent", "oracle", "--on", "far", "--into", "r")
    wait_until(lambda: service.sandboxes or process.poll() is not None)
    lists = [each.wanted.get("networkAllowList") for each in service.sandboxes.values()]
    output = process.communicate(timeout=100)
    assert (process.returncode, lists) == (0, ["10.1.0.0/16"]), output


@pytest.mark.parametrize(("target", "closed"), [("modal", "blocked"), ("daytona", "blocked"), ("docker", "none")])
def test_a_task_without_a_network_has_none_on_other_targets(tmp_path: Path, target: str, closed: str) -> None:
    write_task(tmp_path / "two", '[environment]\nnetwork_mode = "no-network"\n')
    named = f"{target}:debian:12"
    profile = create_profile(read_trial(tmp_path / "two", named), read_box(tmp_path / "two"), tmp_path)
    assert (getattr(profile, "type", ""), getattr(profile, "network", "")) == (target, closed)


def read_box(folder: Path) -> BoxSpec:
    """The container of a task."""
    (task,), _ = load_tasks(str(folder))
    assert task.harbor is not None
    return task.harbor.box


def read_trial(folder: Path, target: str) -> Trial:
    """A trial of a task on a target."""
    (task,), _ = load_tasks(str(folder))
    return Trial("k" * 24, task, target, "", 1)
