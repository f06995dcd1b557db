"""``gather``: one command in several terminals."""

from __future__ import annotations

import pytest

import hermes_exec.sync as hx


def test_results_are_in_the_order_of_the_terminals() -> None:
    with hx.open("local", env={"N": "1"}) as one, hx.open("local", env={"N": "2"}) as two:
        results = hx.gather([two, one, two], "echo $N", max_parallel=2)
    assert [result.stdout for result in results] == [b"2\n", b"1\n", b"2\n"]


def test_an_error_in_one_terminal_loses_no_other_result() -> None:
    with hx.open("local") as one, hx.open("local") as closed:
        closed.close()
        with pytest.raises(
            hx.GatherFailed, match="1 of 2 terminals failed; the first is local: the terminal is closed"
        ) as caught:
            hx.gather([closed, one], "echo here")
    error, result = caught.value.outcomes
    assert isinstance(error, hx.Closed)
    assert isinstance(result, hx.Result)
    assert result.stdout == b"here\n"


def test_no_command_at_once_is_refused() -> None:
    with hx.open("local") as one, pytest.raises(hx.UsageError, match="max_parallel is 0"):
        hx.gather([one], "true", max_parallel=0)
