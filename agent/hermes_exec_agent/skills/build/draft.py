"""Drafts of skills: the prompts, a model's reply, and the files in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence


_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)
_PATH = """\
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
"""


class UnreadableReply(ValueError):
    """A reply without a draft; the message has the cause."""


class Draft(BaseModel):
    """A model's draft of a skill."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    description: str = Field(min_length=1, max_length=1000)
    instructions: str = ""
    script: str = Field(min_length=1)
    tests: str = Field(min_length=1)
    packages: list[str] = []

    def files(self, name: str) -> dict[str, str]:
        """Return the files of the skill ``name`` by path."""
        module = name.replace("-", "_")
        # A JSON string is a YAML string, so that no text of a model ends its line.
        head = f"---\nname: {name}\ndescription: {_quote_yaml(self.description)}\n---\n"
        body = self.instructions.strip() or self.description
        files = {
            "SKILL.md": f"{head}# {name}\n\n{body}\n",
            f"scripts/{module}.py": _script_metadata(self.packages) + _end_with_newline(self.script),
            f"tests/test_{module}.py": _PATH + _end_with_newline(self.tests),
        }
        if "from __future__" in self.tests:  # it must come first
            files[f"tests/test_{module}.py"] = _end_with_newline(self.tests)
        return files


def parse_draft(text: str) -> Draft:
    """Parse the draft in a model's reply.

    Raises:
        Unreadable: the reply has none.
    """
    try:
        return Draft.model_validate(parse_json_object(text))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
        raise UnreadableReply(f"the reply is not a draft: {wrong}") from None


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse the JSON object in a reply, with or without a fence around it.

    Raises:
        Unreadable: the reply has none.
    """
    fenced = _FENCE.search(text)
    start = text.find("{")
    tries = [text, *([fenced[1]] if fenced else []), *([text[start : text.rfind("}") + 1]] if start >= 0 else [])]
    why = "it holds no JSON object"
    for each in tries:
        try:
            value: Any = json.loads(each, strict=False)
        except (ValueError, RecursionError) as error:
            why = f"its JSON cannot be read: {error}" if start >= 0 else why
            continue
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
    raise UnreadableReply(f"the reply is not a draft: {why}")


def _quote_yaml(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def _end_with_newline(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _script_metadata(packages: list[str]) -> str:
    """Return the block in which a script names its packages (PEP 723)."""
    if not packages:
        return ""
    listed = ", ".join(json.dumps(each) for each in packages)
    return f"# /// script\n# dependencies = [{listed}]\n# ///\n"


DRAFT_PROMPT = """\
You write one skill: a Python function that takes JSON values by name and returns what JSON can say. It is judged by \
tests that you do not see. Reply with one JSON object and nothing else:
description: what it does and when to use it, in one or two plain sentences.
instructions: Markdown for its users: its arguments, its result, and the files that it leaves.
script: a whole Python module that defines {module}(...), with a docstring and with types for every argument and for \
the result. It raises an exception for wrong input.
tests: a module for pytest that begins with "import {module}" and compares what {module}.{module}(...) returns with \
plain values, and what is in every file that it leaves with plain text. Its tests must fail when the function is \
broken, when one of its arguments is ignored, and when something is not written.
packages: names of packages from PyPI that the script imports; [] if the standard library does.
It runs without a network, as another user, in a new sandbox each time. It may write below /app/data alone, and finds \
nothing there. It starts no processes that stay, reads no variables, and looks at nothing that runs its tests."""

CASES_PROMPT = """\
You make cases that tell a right program from a wrong one. You see the request and how the function is \
called, never its code. Reply with one JSON object, with five cases at most: \
{"cases": [{"arguments": {"name": value}, "result": value, "files": {"report.csv": {"lines": ["Product,Revenue"]}}}]}
result: what the function returns; leave it out where the request does not say that, and say only what the files hold.
files: what is in each file that the call leaves below /app/data, by its path without that folder (data/report.csv is \
report.csv): "equals" (its whole text), "lines" (whole lines in this order; others may stand between them) or \
"contains" (a list of pieces of text). If a file is wanted, at least one case has it, with what only these arguments \
bring into it; leave it out where no file is wanted.
The person's own examples are known to who wrote the function: choose other arguments, of other sizes and values, so \
that a function which knows only those examples fails. Where the request has alternatives, limits, defaults or empty \
input, let the cases take each of them, several in one case where they can be.
Only cases that follow from the request without any doubt; an empty list where there is none, as where all depends on \
time, on chance or on wording.
constant: only if every call rightly gives the same result and the same files, in addition to the cases: one sentence \
why."""


DIAGNOSIS_PROMPT = """\
A function failed in use. You see its code, and the call. Reply with one JSON object: {"fault": "skill" or "call", \
"why": one sentence}.
call: it was given what it says that it does not take, or what makes no sense, and was right to refuse it.
skill: it should have given a result; if in doubt, call."""


def describe_failure(script: str, what: str) -> str:
    """Describe a failed run for the model that diagnoses it."""
    return f"The code:\n{script}\n\nIt failed {what}"


def describe_task(task: str, request: str) -> str:
    """Describe the task of a draft."""
    person = f"\n\nThe person said:\n{request}" if request and request.strip() != task.strip() else ""
    return f"The task:\n{task}{person}"


def describe_rejection(reasons: Sequence[str]) -> str:
    """Explain why a draft was not accepted."""
    listed = "\n".join(f"- {each}" for each in reasons)
    return f"It was not accepted:\n{listed}\nReply with the whole object again, corrected."


def describe_improvement(script: str, tests: str, what: str) -> str:
    """Describe a skill that has to be changed, and why."""
    return (
        f"There is this skill already.\n\nscript:\n{script}\n\ntests:\n{tests}\n\nIn use it failed:\n{what}\n\n"
        "Find out why. Fix it, add a test that fails without the change, and keep every other behaviour."
    )


def describe_cases(task: str, request: str, signature: str) -> str:
    """Describe the function that cases are requested for."""
    return f"{describe_task(task, request)}\n\nThe function:\n{signature}"
