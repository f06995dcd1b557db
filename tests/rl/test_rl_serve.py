"""``rl serve`` with the released server of Atropos: groups, masks, scores, and posts without an answer."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.rigs.atropos import Trainer, lose_first_answer, serve_api
from tests.rigs.batches import PROGRAM, BatchPerson, find_shards
from tests.rigs.bounded import wait_until
from tests.rigs.policy_server import BASE, Policy, serve
from tests.rigs.tokens import load_tokenizer
from tests.rl.test_rl_groups import write_adapter
from tests.rl.test_rl_policy import find_port, list_argv

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = pytest.mark.timeout(180)
TASKS: list[dict[str, Any]] = [
    {"id": "a", "instruction": "Write good into out.", "checks": {
        "word": {"command": "grep -q good out", "weight": 3}, "number": {"command": "test -s number"},
    }},
    {"id": "b", "instruction": "Write good into the file out.", "check": "grep -q good out"},
]  # fmt: skip


@pytest.fixture(scope="module")
def api() -> Generator[str]:
    with serve_api() as url:
        yield url


@pytest.fixture(scope="module")
def trainer(api: str) -> Generator[Trainer]:
    found = Trainer(api, batch=4)
    found.start()
    yield found
    found.stop()


class Person(BatchPerson):
    """Runs ``rl`` in a home with the tasks."""

    def start_rl(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PROGRAM, "rl", *argv], env=self.environ, cwd=self.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def read_records(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted((self.home / "rl/groups").glob("*.json"))]

    def count(self) -> dict[str, int]:
        done = self.start_rl("status", "--json").communicate()
        found: dict[str, int] = json.loads(done[0])["groups"]
        return found


@contextmanager
def serve_model(form: str, *, ids: bool = True) -> Generator[tuple[Policy, str]]:
    """Serve a policy in this process; yield it with its address."""
    found = Policy(form, ids=ids)
    server = serve(0, found)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield found, f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def create_person(home: Path, url: str = "") -> Person:
    environ = {"LLM_PROVIDER": "sglang", "LLM_BASE_URL": url, "DEFAULT_MODEL": BASE} if url else {}
    person = Person(home, **environ)
    person.write_tasks(TASKS)
    return person


@pytest.fixture
def late_trainer() -> Generator[Trainer]:
    """A trainer of its own server that has not asked for a batch yet."""
    with serve_api() as url:
        found = Trainer(url, batch=4)
        yield found
        found.stop()


def test_groups_of_a_policy_that_is_run_reach_the_trainer(late_trainer: Trainer, tmp_path: Path) -> None:
    trainer = late_trainer
    person = create_person(tmp_path)
    write_adapter(tmp_path / "rl/adapters/step-1")
    port = find_port()
    process = person.start_rl(
        "serve", "tasks.jsonl", "--trainer", trainer.url, "--group-size", "4", "--rounds", "1", "--trainer-wait", "60",
        "--policy", "local", "--policy-port", str(port), "--send-equal", "--json",
        "--", *list_argv(port),
    )  # fmt: skip
    assert process.stderr
    # The released server takes no environment before the trainer has asked for a batch.
    assert any("waiting for the trainer" in line for line in iter(process.stderr.readline, ""))
    trainer.start()
    said = process.communicate()
    assert process.returncode == 0, said
    assert json.loads(said[0])["groups"] == {"posted": 2}
    trainer.await_groups(2)
    for group in trainer.groups:
        assert {len(group[name]) for name in ("tokens", "masks", "scores", "inference_logprobs")} == {4}
        for tokens, masks, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
            sampled = [id for id, mask in zip(tokens, masks, strict=True) if mask != -100]
            assert all(mask in (-100, id) for id, mask in zip(tokens, masks, strict=True))
            assert all((mask == -100) == (each == 1.0) for mask, each in zip(masks, logprobs, strict=True))
            text = load_tokenizer().decode(sampled)
            assert text.startswith("<tool_call>")
            assert "Done as number" in text
            assert "Write good" not in text
    scores = {record["task"]: [each["score"] for each in record["trials"]] for record in person.read_records()}
    assert set(scores["a"]) <= {0.25, 1.0}
    assert set(scores["b"]) <= {0.0, 1.0}
    part = next(each for each in person.read_records() if each["task"] == "a")["trials"][0]
    assert part["parts"] == {"word": float(part["score"] == 1.0), "number": 1.0}
    (version,) = {record["policy"] for record in person.read_records()}
    digest = json.loads((tmp_path / f"rl/policies/{version}.json").read_bytes())["digest"]
    assert version == f"policy-{digest[:12]}"
    rows = person.run("export", "rl/rounds/00000", "--as", "tokens").stdout.splitlines()
    assert [json.loads(row)["policy"] for row in rows] == [version] * 8


def test_a_killed_round_and_a_lost_answer_are_counted_and_never_repeated(
    api: str, trainer: Trainer, tmp_path: Path
) -> None:
    before = len(trainer.groups)
    with serve_model("sglang") as (policy, address), lose_first_answer(api, "/scored_data") as (url, posts):
        person = create_person(tmp_path, address)
        argv = (
            "serve", "tasks.jsonl", "--trainer", url, "--group-size", "2", "--rounds", "2", "--send-equal",
            "--trainer-wait", "60", "-n", "4",
        )  # fmt: skip
        policy.answers.clear()
        process = person.start_rl(*argv)
        wait_until(lambda: bool(policy.asked))
        process.kill()  # in the middle of its first round
        process.communicate()
        wait_until(lambda: not find_shards(tmp_path / "rl/rounds/00000"))
        policy.fail_first = len(policy.asked) + 2
        policy.answers.set()
        process = person.start_rl(*argv)
        said = process.communicate()
    assert process.returncode == 0, said
    assert posts.count("/scored_data") == 4
    assert person.count() == {"posted": 3, "unanswered": 1, "dropped: interrupted": 2}
    trainer.await_groups(before + 4)
    sent = [record["body"]["tokens"] for record in person.read_records() if "body" in record]
    assert sorted(sent) == sorted(group["tokens"] for group in trainer.groups[before:])
    # Two replies failed at first: their trials have another attempt, and no score of the failure.
    results = [json.loads(line) for line in person.run("export", "rl/rounds/00001", "--all").stdout.splitlines()]
    assert sum(each["state"] == "failed" for each in results) == 2
    assert sum(each["state"] == "graded" for each in results) == 4


@pytest.mark.usefixtures("trainer")
def test_a_server_without_token_ids_ends_it_with_one_line(api: str, tmp_path: Path) -> None:
    with serve_model("vllm", ids=False) as (_, address):
        person = create_person(tmp_path, address)
        person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "true"} for number in range(8))
        process = person.start_rl(
            "serve", "tasks.jsonl", "--trainer", api, "--group-size", "1", "--groups", "8", "--trainer-wait", "60",
            "--attempts", "1", "-n", "8",
        )  # fmt: skip
        said = process.communicate()
    assert process.returncode == 125, said
    assert "prompt_token_ids" in said[1].splitlines()[-1]
    assert "Traceback" not in said[1]
    assert person.count() == {"dropped: not graded": 8}


def test_a_signal_ends_the_wait_for_a_trainer(tmp_path: Path) -> None:
    person = create_person(tmp_path, "http://127.0.0.1:9/v1")
    process = person.start_rl("serve", "tasks.jsonl", "--trainer", "http://127.0.0.1:9", "--group-size", "2")
    assert process.stderr
    assert any("waiting for the trainer's server" in line for line in iter(process.stderr.readline, ""))
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in said[1]) == (0, False), said
    assert person.count() == {}
