"""What a model says in docs/lab.md: it finds no skill, has one made, uses it, and answers."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

from hermes_exec_agent.models import ask

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.models.protocol import Reply

SALES = {"Apples": 3, "Pears": 4.5}
REQUEST = (
    "Create a new skill called 'generate_csv_report'. Accept arguments 'filename' and 'sales_data' (dict). "
    "Write parameters as CSV to '/app/data/[filename].csv' with headers: Product, Revenue."
)
"""The request of the lab, word for word."""
USE = "Write a report of my sales: 3 for Apples, 4.5 for Pears."
SCRIPT = '''\
"""Sales as a file."""

import csv


def generate_csv_report(filename: str, sales_data: dict[str, float]) -> str:
    """Write one line for each product to /app/data/FILENAME.csv and return that path."""
    path = f"/app/data/{filename}.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\\n")
        writer.writerow(["Product", "Revenue"])
        writer.writerows(sales_data.items())
    return path
'''
TESTS = """\
from pathlib import Path

import generate_csv_report


def test_the_path_is_returned():
    assert generate_csv_report.generate_csv_report("a", {"A": 1}) == "/app/data/a.csv"


def test_each_product_has_a_line():
    path = generate_csv_report.generate_csv_report("b", {"A": 1, "B": 2.5})
    assert Path(path).read_text() == "Product,Revenue\\nA,1\\nB,2.5\\n"


def test_without_sales_there_are_the_headers():
    path = generate_csv_report.generate_csv_report("c", {})
    assert Path(path).read_text() == "Product,Revenue\\n"
"""
MADE = "The skill generate_csv_report is there."
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
            "instructions": "Give `filename` without .csv and `sales_data` as revenues by product. It leaves a file.",
            "script": script,
            "tests": TESTS,
            "packages": [],
        }
    )


def cases() -> str:
    """The reply of the separate context, which never sees the code."""
    known = {"q3": {"Plums": 7, "Figs": 2.25}, "none": {}}
    return json.dumps(
        {
            "cases": [
                {
                    "arguments": {"filename": name, "sales_data": sales},
                    "result": f"/app/data/{name}.csv",
                    "files": {f"{name}.csv": {"lines": ["Product,Revenue", *(f"{k},{v}" for k, v in sales.items())]}},
                }
                for name, sales in known.items()
            ]
        }
    )


def asks(name: str = "generate-csv-report") -> Reply:
    """The conversation's first reply: there is no such tool."""
    return ask(("skill_manage", {"action": "create", "name": name, "task": REQUEST}))


def uses() -> list[Reply | str]:
    """What follows when a report is asked for."""
    arguments = {"filename": "report", "sales_data": SALES}
    return [ask(("skill_run", {"name": "generate-csv-report", "arguments": json.dumps(arguments)})), ANSWER]


def rows(report: Path) -> list[list[str]]:
    """What a report holds."""
    with report.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
