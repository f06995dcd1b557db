"""What the compiler says to models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DRAFTING = """\
You write one skill: a Python function that takes JSON values by name and returns what JSON can say. It is judged by \
tests that you do not see. Reply with one JSON object and nothing else:
description: what it does and when to use it, in one or two plain sentences.
instructions: Markdown for whoever uses it: what it takes, what it gives, which files it leaves.
script: a whole Python module that defines {module}(...), with a docstring and with types for every argument and for \
the result. It raises an exception for wrong input.
tests: a module for pytest that begins with "import {module}" and compares what {module}.{module}(...) returns with \
plain values, and what is in every file that it leaves with plain text. Its tests must fail when the function is \
broken, when one of its arguments is ignored, and when something is not written.
packages: names of packages from PyPI that the script imports; [] if the standard library does.
It runs without a network, as another user, in a new sandbox each time. It may write below /app/data alone, and finds \
nothing there. It starts no processes that stay, reads no variables, and looks at nothing that runs its tests."""

CASES = """\
You make cases that tell a right program from a wrong one. You see what somebody wants and how the function is \
called, never its code. Reply with one JSON object, with five cases at most: \
{"cases": [{"arguments": {"name": value}, "result": value, "files": {"report.csv": {"lines": ["Product,Revenue"]}}}]}
result: what the function returns; leave it out where the request does not say that, and say only what the files hold.
files: what is in each file that the call leaves below /app/data, by its path without that folder (data/report.csv is \
report.csv): "equals" (its whole text), "lines" (whole lines in this order; others may stand between them) or \
"contains" (a list of pieces of text). If a file is wanted, at least one case has it, with what only these arguments \
bring into it; leave it out where no file is wanted.
The person's own examples are known to who wrote the function: choose other arguments, of other sizes and values, so \
that a function which knows only those examples fails.
Only cases that follow from the request without any doubt; an empty list where there is none, as where all depends on \
time, on chance or on wording.
constant: beside the cases, only if every call rightly gives the same result and the same files: one sentence why."""


DIAGNOSING = """\
A function failed in use. You see its code, and the call. Reply with one JSON object: {"fault": "skill" or "call", \
"why": one sentence}.
call: it was given what it says that it does not take, or what makes no sense, and was right to refuse it.
skill: it should have given a result; if in doubt, call."""


def as_json(value: object) -> str:
    """A value as models write it."""
    return json.dumps(value, ensure_ascii=False)


def failure(script: str, what: str) -> str:
    """What failed, and how."""
    return f"The code:\n{script}\n\nIt failed {what}"


def wish(task: str, request: str) -> str:
    """What a draft is to do."""
    person = f"\n\nThe person said:\n{request}" if request and request.strip() != task.strip() else ""
    return f"The task:\n{task}{person}"


def mend(reasons: Sequence[str]) -> str:
    """Why a draft was not accepted."""
    listed = "\n".join(f"- {each}" for each in reasons)
    return f"It was not accepted:\n{listed}\nReply with the whole object again, mended."


def better(script: str, tests: str, what: str) -> str:
    """What a skill is to be changed from, and why."""
    return (
        f"There is this skill already.\n\nscript:\n{script}\n\ntests:\n{tests}\n\nIn use it failed:\n{what}\n\n"
        "Find out why. Mend it, add a test that fails without the change, and keep every other behaviour."
    )


def asked_for(task: str, request: str, signature: str) -> str:
    """What cases are to be made for."""
    return f"{wish(task, request)}\n\nThe function:\n{signature}"
