"""A workshop with a scripted model, and what came of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models.scripted import ScriptedModel
from hermes_exec_agent.skills.build.builder import Requester, SkillBuilder
from hermes_exec_agent.skills.registry.registry import Registry
from tests.rigs.skill_makers import home_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hermes_exec_policies.gate.cases import Case
    from tests.conftest import Require

SCRIPT = '''"""Reports as CSV."""

import csv

HEADERS = ["Product", "Revenue"]


def generate_csv_report(rows: list[dict[str, object]]) -> dict[str, object]:
    """Write rows with Product and Revenue to /app/data/report.csv; gives the headers and how many rows there are."""
    if any(set(row) != set(HEADERS) for row in rows):
        raise ValueError("each row has Product and Revenue")
    with open("/app/data/report.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, HEADERS, lineterminator="\\n")
        writer.writeheader()
        writer.writerows(rows)
    return {"headers": HEADERS, "rows": len(rows)}
'''
TESTS = """import generate_csv_report


def test_headers_and_rows():
    told = generate_csv_report.generate_csv_report([{"Product": "a", "Revenue": 1}])
    assert told == {"headers": ["Product", "Revenue"], "rows": 1}
    with open("/app/data/report.csv") as file:
        assert file.read().split() == ["Product,Revenue", "a,1"]


def test_no_rows():
    assert generate_csv_report.generate_csv_report([]) == {"headers": ["Product", "Revenue"], "rows": 0}
"""
NO_CASES = json.dumps({"cases": []})
TASK = "Write a CSV report with the headers Product and Revenue to data/report.csv."


def draft(script: str = SCRIPT, tests: str = TESTS, **fields: Any) -> str:
    """What a model replies."""
    told = {"description": "Writes a CSV report of products and their revenue.", "script": script, "tests": tests}
    return json.dumps({**told, "packages": [], **fields})


@dataclass
class Made:
    """A workshop and all that it said."""

    shop: SkillBuilder
    model: ScriptedModel
    lines: list[str] = field(default_factory=list[str])

    def compile(self, name: str = "generate-csv-report", task: str = TASK, request: str = "") -> Any:
        return asyncio.run(self.shop.compile(name, task, request))

    @property
    def skills(self) -> list[str]:
        return sorted(self.shop.registry.skills())


def workshop(folder: Path, replies: Sequence[str], cases: Sequence[Case] = (), **maker: Any) -> Made:
    """A workshop over a registry of its own."""
    model = ScriptedModel(replies)
    lines: list[str] = []
    given: dict[str, Any] = {"model": "scripted", "shells": ("bubblewrap",), "tell": lines.append, **maker}
    made = SkillBuilder(Registry(home_in(folder)), Requester(**given), model, cases=cases)
    return Made(made, model, lines)


@pytest.fixture
def sandboxes(require: Require) -> None:
    require("bwrap", "makes the sandbox")
