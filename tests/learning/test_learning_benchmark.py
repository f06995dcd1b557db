"""The benchmark of learning in a reduced form: one audit is due, and each part of a month takes space."""

from __future__ import annotations

from benchmarks import learning
from benchmarks.figures import Figure, Table, show
from benchmarks.memory import Vocabulary


def test_a_reduced_benchmark_audits_counts_and_reviews() -> None:
    found = [*learning.measure_audit(40, 1), *learning.measure_month(10, Vocabulary())]
    for name in ("audit of 40 tasks", "counting versions in 40 tasks", "a month of learning, 2,000 conversations"):
        assert f"| {name} |" in show(found)
    (table,) = (each for each in found if isinstance(each, Table))
    assert all(not row[1].startswith("0.0 ") for row in table.rows)
    assert "0 events of reviews." not in table.remarks
    assert all(each.ours > 0 for each in found if isinstance(each, Figure))
