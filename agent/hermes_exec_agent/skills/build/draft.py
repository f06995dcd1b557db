"""A draft of a skill: what a model writes, and the files that are made of it."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hermes_exec_policies.gate.source import signature_of

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)
_PATH = """\
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
"""


class Unreadable(ValueError):
    """A reply holds no draft; says what is wrong with it."""


class Draft(BaseModel):
    """What a model writes of a skill."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    description: str = Field(min_length=1, max_length=1000)
    instructions: str = ""
    script: str = Field(min_length=1)
    tests: str = Field(min_length=1)
    packages: list[str] = []

    def files(self, name: str) -> dict[str, str]:
        """The files of the skill of this name, by their paths."""
        module = name.replace("-", "_")
        # JSON's strings are YAML's too, so nothing that a model writes ends the line that it stands in.
        head = f"---\nname: {name}\ndescription: {_quoted(self.description)}\n---\n"
        body = self.instructions.strip() or self.description
        made = {
            "SKILL.md": f"{head}# {name}\n\n{body}\n",
            f"scripts/{module}.py": _inline(self.packages) + _ended(self.script),
            f"tests/test_{module}.py": _PATH + _ended(self.tests),
        }
        if "from __future__" in self.tests:  # it has to come first
            made[f"tests/test_{module}.py"] = _ended(self.tests)
        return made


def parse(text: str) -> Draft:
    """The draft in a model's reply.

    Raises:
        Unreadable: there is none.
    """
    try:
        return Draft.model_validate(loaded(text))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
        raise Unreadable(f"the reply is no draft: {wrong}") from None


def loaded(text: str) -> dict[str, Any]:
    """The JSON object in a reply, with or without a fence around it.

    Raises:
        Unreadable: there is none.
    """
    fenced = _FENCE.search(text)
    start = text.find("{")
    tries = [text, *([fenced[1]] if fenced else []), *([text[start : text.rfind("}") + 1]] if start >= 0 else [])]
    why = "it holds no JSON object"
    for each in tries:
        try:
            told: Any = json.loads(each, strict=False)
        except (ValueError, RecursionError) as error:
            why = f"its JSON cannot be read: {error}" if start >= 0 else why
            continue
        if isinstance(told, dict):
            return cast("dict[str, Any]", told)
    raise Unreadable(f"the reply is no draft: {why}")


def signature(script: str, module: str) -> tuple[str, dict[str, Any]]:
    """How the function of a script is called, as text and as JSON Schema; nothing where that cannot be told."""
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", {}
    found = signature_of(tree, ("run", module))
    node = next(
        (
            each
            for each in reversed(tree.body)
            if isinstance(each, ast.FunctionDef) and found and each.name == found.function
        ),
        None,
    )
    if found is None or node is None:
        return "", {}
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    told = f"def {node.name}({ast.unparse(node.args)}){returns}:\n    {ast.get_docstring(node) or '...'}"
    return told, found.schema


def _quoted(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _inline(packages: list[str]) -> str:
    """The block in which a script names its packages (PEP 723)."""
    if not packages:
        return ""
    listed = ", ".join(json.dumps(each) for each in packages)
    return f"# /// script\n# dependencies = [{listed}]\n# ///\n"
