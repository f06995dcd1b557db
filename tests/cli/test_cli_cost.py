"""Prices of running resources, and what they have cost."""

from __future__ import annotations

import time

import pytest

from hermes_exec.backend import Resource
from hermes_exec.cli.cost import compute_cost, format_cost
from hermes_exec_backends._shared.prices import DAYTONA, estimate_modal


def test_a_resource_costs_its_hours_and_today_those_since_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    now = 1_800_000_000.0  # 08:00 UTC
    each = Resource("modal:@x", since=now - 24 * 3600, hourly_cost=0.5, price_source="a page")
    assert compute_cost(each, now) == 12.0
    assert compute_cost(each, now, today=True) == 4.0
    assert compute_cost(Resource("modal:@x", since=now), now) is None
    assert (format_cost(0.25, estimated=True), format_cost(None)) == ("~$0.25", "unknown")


def test_an_unknown_gpu_has_no_price_and_the_least_size_is_paid() -> None:
    assert estimate_modal(None, None, None) == pytest.approx(0.125 * (0.141912 + 0.024012))
    assert estimate_modal(1.0, 2 << 30, "t4") == pytest.approx(0.141912 + 2 * 0.024012 + 0.5904)
    assert [estimate_modal(1.0, None, kind) for kind in ("X1", "T4,L4", "T4:many", "2")] == [None] * 4
    assert DAYTONA.estimate(cpus=1, memory=1, gpus=[("", 1.0)]) is None
