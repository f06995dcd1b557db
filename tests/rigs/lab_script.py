"""What a model says in docs/lab.md: it finds no skill, has one made, uses it, and answers."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

from hermes_exec_agent.models import ask

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.models.protocol import Reply

ROWS = [["Apples", 3], ["Pears", 4.5]]
REQUEST = (
    "Write my sales as a CSV report with the headers Product and Revenue: 3 for Apples, 4.5 for Pears. "
    f"For example generate_csv_report({json.dumps(ROWS)}) -> 2, the number of rows."
)
SCRIPT = '''\
"""Sales as a file."""

import csv


def generate_csv_report(rows: list[list]) -> int:
    """Write one line for each product to /app/data/report.csv and return how many there are."""
    with open("/app/data/report.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["Product", "Revenue"])
        writer.writerows(rows)
    return len(rows)
'''
TESTS = """\
import generate_csv_report


def test_counts_the_rows():
    assert generate_csv_report.generate_csv_report([["A", 1], ["B", 2], ["C", 3]]) == 3


def test_no_rows_are_none():
    assert generate_csv_report.generate_csv_report([]) == 0
"""
ANSWER = "The report is in data/report.csv."
LINES = [
    "[Core] No tool found for task...",
    "[Compiler] Drafting 'generate_csv_report.py'...",
    "[Sandbox] Executing validation suite... Exit code: 0",
    "[Core] Skill 'generate_csv_report' successfully registered.",
]
"""What the person is told meanwhile, in this order."""


def draft(script: str = SCRIPT) -> str:
    """The reply of a model that was asked for a skill."""
    return json.dumps(
        {
            "description": "Write sales as a CSV report. Use it when somebody wants products and revenues as a file.",
            "instructions": "Give `rows` as pairs of a product and its revenue. It leaves report.csv.",
            "script": script,
            "tests": TESTS,
            "packages": [],
        }
    )


def asks(name: str = "generate-csv-report") -> Reply:
    """The conversation's first reply: there is no such tool."""
    task = "Write rows of product and revenue to report.csv with the headers Product and Revenue."
    return ask(("skill_manage", {"action": "create", "name": name, "task": task}))


def uses() -> list[Reply | str]:
    """What follows once the skill is there."""
    arguments = {"name": "generate-csv-report", "arguments": json.dumps({"rows": ROWS})}
    return [ask(("skill_run", arguments)), ANSWER]


def rows(report: Path) -> list[list[str]]:
    """What a report holds."""
    with report.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
