"""``rl train`` at a terminal: the trainer's variables, the adapters that it leaves, and the policy that serves them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.rl.group_record import GroupRecord
from tests.rigs.batches import PROGRAM
from tests.rl.test_rl_groups import write_adapter

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
TRAINER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.rl.test_rl_groups import write_adapter
assert os.environ["HERMES_EXEC_RL_URL"] == "http://127.0.0.1:9"
assert os.path.isabs(os.environ["HERMES_EXEC_RL_FOLDER"])
assert sys.stdin.isatty()
folder = Path(os.environ["HERMES_EXEC_RL_ADAPTERS"])
write_adapter(folder / "step-1", b"1111")
write_adapter(folder / "step-2", b"2222", cut=1)
(folder / "old").mkdir()
(folder / "old/adapter_model.bin").write_bytes(b"pickle")
sys.exit(int(sys.argv[2]))
"""


def train(home: Path, *argv: str, more: dict[str, str] | None = None) -> tuple[int, str]:
    """Run ``rl train`` at a terminal of its own; return the exit code and what the terminal showed."""
    ours, theirs = pty.openpty()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **(more or {})}
    words = [str(PROGRAM), "rl", "train", *argv]
    process = subprocess.Popen(
        words, cwd=home, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(ours)
    return process.wait(60), shown.decode()


def list_trainer(code: int) -> Sequence[str]:
    return "--trainer", "http://127.0.0.1:9", "--", sys.executable, "-c", TRAINER, str(ROOT), str(code)


def read_policies(home: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in (home / "rl/policies").glob("*.json")]


def test_a_trainer_leaves_an_adapter_that_is_recorded_by_its_digest(tmp_path: Path) -> None:
    code, shown = train(tmp_path, *list_trainer(0))
    assert code == 0, shown
    (policy,) = read_policies(tmp_path)
    assert policy["policy"] == f"policy-{policy['digest'][:12]}"
    assert policy["policy"] in shown
    assert "step-2: adapter_model.safetensors: it has" in shown
    assert "old: adapter_model.bin is a pickle" in shown


def test_a_trainer_that_fails_is_one_line_and_its_whole_adapters_are_recorded(tmp_path: Path) -> None:
    code, shown = train(tmp_path, *list_trainer(3))
    assert (code, len(read_policies(tmp_path))) == (125, 1)
    assert "the trainer ended with exit code 3" in shown.splitlines()[-1]
    code, shown = train(tmp_path, "--", "sh", "-c", "kill -9 $$")
    assert (code, "killed by SIGKILL" in shown) == (125, True), shown
    code, shown = train(tmp_path, "--", "true")
    assert (code, "left no new adapter" in shown) == (125, True), shown
    code, shown = train(tmp_path, "--", "no-such-trainer")
    assert (code, shown.count("\n")) == (2, 1), shown


def test_nothing_trains_without_a_person(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "rl", "train", "--", "touch", "ran"], cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "not a terminal" in done.stderr) == (2, True), done.stderr
    code, shown = train(tmp_path, "--", "touch", "ran", more={"HERMES_EXEC_AGENT": "1"})
    assert (code, "shell of an agent" in shown) == (2, True), shown
    assert not (tmp_path / "ran").exists()


def test_two_trainers_do_not_write_the_same_folder(tmp_path: Path) -> None:
    again = f"{PROGRAM} rl train -- true; test $? = 2"
    code, shown = train(tmp_path, "--", "sh", "-c", again)
    assert "another trainer runs there" in shown
    assert (code, "left no new adapter" in shown) == (125, True), shown


def test_a_trainer_holds_its_folder_after_a_kill_of_the_command_and_its_helpers_do_not_after_its_end(
    tmp_path: Path,
) -> None:
    still = "exec sleep 300 </dev/null >/dev/null 2>&1"
    try:
        train(tmp_path, "--", "sh", "-c", f"({still}) & echo $! >helper")
        code, _ = train(tmp_path, "--", "sh", "-c", f"echo $$ >trainer; kill -9 $PPID; {still}")
        assert code == -signal.SIGKILL
        code, shown = train(tmp_path, "--", "true")
        assert (code, "another trainer runs there" in shown) == (2, True), shown
    finally:
        for each in ("helper", "trainer"):
            os.kill(int((tmp_path / each).read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "F32"}, "wrong at the tensor w"),
        ({"data_offsets": [1, 5]}, "overlap"),
        ({"data_offsets": [0, True]}, "wrong at the tensor w"),
        ({"shape": None}, "wrong at the tensor w"),
    ],
)
def test_weights_with_a_wrong_header_are_left_out(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    from hermes_exec_agent.rl.adapters import scan_adapters

    folder = write_adapter(tmp_path / "adapter")
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} | change}).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"12345")
    found, faults = scan_adapters(tmp_path)
    assert found == []
    assert why in faults[folder]


def test_groups_of_an_interrupted_round_are_dropped_and_counted(tmp_path: Path) -> None:
    record = GroupRecord(tmp_path)
    with record.hold():
        number, path = record.next_round()
        path.mkdir()
        settings = {"policy": "policy-1"}
        (path / "run.json").write_text(json.dumps({"tasks": {"a": "1", "b": "2", "c": "3"}, "settings": settings}))
        record.close(record.open({"task": "a", "round": number, "digest": "d"}), "posted")
        record.open({"task": "b", "round": number, "digest": "e"})
        (tmp_path / "rounds/00001").mkdir()  # its process ended before a trial began
    for _ in range(2):
        with GroupRecord(tmp_path).hold():
            pass
        assert GroupRecord(tmp_path).count() == {"posted": 1, "unanswered": 1, "dropped: interrupted": 1}
    dropped = json.loads((tmp_path / "groups/000003.json").read_bytes())
    assert (dropped["task"], dropped["round"], dropped["policy"]) == ("c", 0, "policy-1")
