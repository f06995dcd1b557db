"""Groups of scored trials: what is checked before one is posted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.rl.adapters import find_adapter
from hermes_exec_agent.rl.group_record import GroupRecord
from hermes_exec_agent.rl.groups import GroupFault, ScoredSequence, check_group

if TYPE_CHECKING:
    from pathlib import Path


def sequence(key: str = "k", **changes: Any) -> ScoredSequence:
    values: dict[str, Any] = {
        "tokens": [5, 6, ord(key)], "masks": [-100, -100, ord(key)], "logprobs": [1.0, 1.0, -0.5], "score": 1.0,
        "key": key, "parts": {},
    }  # fmt: skip
    return ScoredSequence(**values | changes)


def test_a_group_has_the_form_of_atropos() -> None:
    group = check_group([sequence("a"), sequence("b", score=0.0)], 2, 3)
    assert group.to_wire() == {
        "tokens": [[5, 6, 97], [5, 6, 98]],
        "masks": [[-100, -100, 97], [-100, -100, 98]],
        "scores": [1.0, 0.0],
        "inference_logprobs": [[1.0, 1.0, -0.5], [1.0, 1.0, -0.5]],
    }
    assert group.digest == check_group([sequence("b", score=0.5), sequence("a")], 2, 3).digest


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("wrong lengths", {"masks": [-100, 97]}),
        ("wrong lengths", {"logprobs": [1.0, 1.0, -0.5, -0.5]}),
        ("too long", {"tokens": [5, 6, 7, 97], "masks": [-100, -100, -100, 97], "logprobs": [1.0, 1.0, 1.0, -0.5]}),
        ("not graded", {"score": float("nan")}),
        ("wrong masks", {"masks": [-100, 7, 97]}),
        ("wrong masks", {"logprobs": [1.0, 1.0, float("-inf")]}),
        ("wrong masks", {"logprobs": [0.0, 1.0, -0.5]}),
        ("wrong masks", {"logprobs": [1.0, 1.0, 0.5]}),
        ("without tokens", {"masks": [-100] * 3, "logprobs": [1.0] * 3}),
    ],
)
def test_a_sequence_that_is_wrong_is_refused(kind: str, changes: dict[str, Any]) -> None:
    with pytest.raises(GroupFault) as caught:
        check_group([sequence("b"), sequence("a", **changes)], 2, 3)
    assert (caught.value.kind, "a" in str(caught.value)) == (kind, True)


def test_a_group_of_another_size_or_of_equal_replies_is_refused() -> None:
    with pytest.raises(GroupFault, match="1 of 2"):
        check_group([sequence()], 2, 3)
    with pytest.raises(GroupFault, match="temperature"):
        check_group([sequence(), sequence()], 2, 3)


def test_a_group_without_an_outcome_counts_as_unanswered_and_its_tokens_are_known(tmp_path: Path) -> None:
    record = GroupRecord(tmp_path / "rl")
    with record.hold():
        assert record.open({"digest": "d1"}) == 1
        record.close(record.open({"digest": "d2"}), "posted")
        record.drop({"task": "t"}, "too long", "9 tokens")
        with pytest.raises(UsageError, match="another process"), GroupRecord(tmp_path / "rl").hold():
            pass
    after = GroupRecord(tmp_path / "rl")
    with after.hold():
        assert after.has("d1")
        assert after.open({"digest": "d3"}) == 4
    assert after.count() == {"unanswered": 1, "posted": 1, "dropped: too long": 1, "open": 1}


def write_adapter(folder: Path, content: bytes = b"1234", *, cut: int = 0) -> Path:
    """Write an adapter as peft does; the last ``cut`` bytes are missing."""
    folder.mkdir(exist_ok=True)
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}}).encode()
    data = len(header).to_bytes(8, "little") + header + content
    (folder / "adapter_model.safetensors").write_bytes(data[: len(data) - cut])
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    return folder


def test_the_newest_whole_adapter_is_found(tmp_path: Path) -> None:
    assert find_adapter(tmp_path) is None
    write_adapter(tmp_path / "step-1")
    first = find_adapter(tmp_path)
    assert first is not None
    write_adapter(tmp_path / "step-2", b"5678", cut=1)
    assert find_adapter(tmp_path) == first
    write_adapter(tmp_path / "step-2", b"5678")
    second = find_adapter(tmp_path)
    assert second is not None
    assert second.folder.name == "step-2"
    assert second.version != first.version
