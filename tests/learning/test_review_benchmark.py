"""The benchmark of a reply's start beside a review, in a reduced form."""

from __future__ import annotations

from benchmarks import reviews
from benchmarks.figures import show


def test_a_reduced_benchmark_has_a_reply_beside_a_worker_that_reviews() -> None:
    found = reviews.figures(40)  # a second worker goes on in the same log
    text = show(found)
    for name in ("while a review runs |", "while a review runs, p95", "more than without, p95"):
        assert name in text
    assert all(each.ours > 0 for each in found if "more than" not in each.name)
    assert found[-1].theirs == reviews.DELAY_MS
