"""What may be asked for as a limit."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec.terminal.limits import Limits


def test_limits_become_bytes_seconds_and_counts() -> None:
    limits = Limits(cpu_s=2, memory_mib=3, processes=4, file_size_mib=5, open_files=6)
    assert limits.as_fields() == {
        "cpu": 2.0,
        "memory": 3 << 20,
        "processes": 4,
        "file_size": 5 << 20,
        "open_files": 6,
    }


def test_what_is_not_limited_is_not_sent() -> None:
    assert Limits().as_fields() == {}
    assert Limits(cpu_s=0.5).as_fields() == {"cpu": 0.5}


def values(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


@pytest.mark.parametrize("name", ["cpu_s", "memory_mib", "processes", "file_size_mib", "open_files"])
@pytest.mark.parametrize("value", [0, -1, "1", True, float("nan"), float("inf"), 1 << 50, b"1"])
def test_what_is_no_positive_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name}=.* is not a valid limit"):
        Limits(**values(name, value))


@pytest.mark.parametrize("name", ["memory_mib", "processes", "file_size_mib", "open_files"])
def test_only_time_may_be_a_fraction(name: str) -> None:
    with pytest.raises(UsageError, match="whole number above 0"):
        Limits(**values(name, 1.5))
