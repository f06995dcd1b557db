"""The reference in docs/configuration.md says what the models say.

Its tables are renewed by running this file with ``--write``.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import tomllib
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import pytest

from hermes_exec.config import values
from hermes_exec.config.files import KEYS, parse_file
from hermes_exec.config.overrides import PREFIX, VARIABLES
from hermes_exec.config.profile import Profile
from hermes_exec.config.settings import (
    AgentSettings,
    AuditSettings,
    CommandSettings,
    Descriptions,
    GatewaySettings,
    GuardrailSettings,
    HookSettings,
    LearningSettings,
    LimitSettings,
    LogSettings,
    MailSettings,
    McpSettings,
    MemorySettings,
    Origin,
    Patterns,
    Ports,
    Profiles,
    Threshold,
    WebSettings,
)
from hermes_exec.config.targets import parse_target
from hermes_exec_backends.profiles import (
    BubblewrapProfile,
    DaytonaProfile,
    DockerProfile,
    LocalProfile,
    ModalProfile,
    SingularityProfile,
    SlurmProfile,
    SshProfile,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

DOCS = Path(__file__).parents[2] / "docs/configuration.md"
PAGES = [page for page in sorted(DOCS.parent.glob("*.md")) if "```toml" in page.read_text()]
MODELS: dict[str, type[BaseModel]] = {
    "profile": Profile,
    **{
        model.kind(): model
        for model in (
            LocalProfile,
            DockerProfile,
            SshProfile,
            SingularityProfile,
            ModalProfile,
            DaytonaProfile,
            SlurmProfile,
            BubblewrapProfile,
        )
    },
    "limits": LimitSettings,
    "audit": AuditSettings,
    "log": LogSettings,
    "agent": AgentSettings,
    "commands": CommandSettings,
    "web": WebSettings,
    "guardrails": GuardrailSettings,
    "hooks": HookSettings,
    "memory": MemorySettings,
    "learning": LearningSettings,
    "gateway": GatewaySettings,
    "mail": MailSettings,
    "mcp": McpSettings,
}
WORDS: dict[str, list[object]] = {
    "text": [values.Text, values.Argument, values.Name, str],
    "[warning, stop]": [Threshold],
    "yes or no": [bool],
    "list of tables": [AgentSettings.model_fields["hooks"].annotation],
    "list": [values.Words, values.Names, values.Binds, Patterns, Ports],
    "table": [
        CommandSettings,
        GuardrailSettings,
        WebSettings,
        AgentSettings.model_fields["approvals"].annotation,
        AgentSettings.model_fields["personalities"].annotation,
        Descriptions,
        values.Table,
        values.Environment,
        dict[str, int],
        dict[str, values.Size],
        dict[str, Any],
        dict[str, dict[str, Any]],
    ],
    "size": [values.Size],
    "seconds": [values.Seconds],
    "path": [values.LocalPath],
    "number or text": [values.Gpus],
    "source": [values.Source],
    "list or table": [values.Sources],
    "number": [values.Count, values.Amount, int, float],
}


def begins_with(hint: Any, known: Any) -> bool:
    """Whether ``hint`` is ``known`` with further bounds."""
    added = getattr(known, "__metadata__", ())
    return bool(added) and get_args(hint)[: len(added) + 1] == (known.__origin__, *added)


def word(hint: Any) -> str:
    for said, known in WORDS.items():
        if any(hint == each or begins_with(hint, each) for each in known):
            return said
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return word(next(part for part in get_args(hint) if part is not type(None)))
    return word(get_args(hint)[0])  # an Annotated of ours around something that is known


def default(value: object) -> str:
    match value:
        case None | "" | () | {} | CommandSettings() | GuardrailSettings() | WebSettings():
            return ""
        case bool():
            return "yes" if value else "no"
        case int() if value >= 1 << 20:
            return values.format_size(value)
        case float():
            return f"{value:g}"
        case tuple() if value:
            return ", ".join(map(str, cast("tuple[object, ...]", value)))
        case _:
            return str(value)


def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """What stands below each field of the class and of those it comes from, in one line each."""
    found: dict[str, str] = {}
    for owner in reversed([each for each in model.__mro__ if each.__module__.startswith("hermes_exec")]):
        (definition,) = ast.parse(inspect.getsource(owner)).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in itertools.pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = below.value if isinstance(below, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[field.target.id] = " ".join(text.value.split())
    return found


def table(name: str) -> str:
    model = MODELS[name]
    hints = get_type_hints(model, include_extras=True)
    meanings = docstrings(model)
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, field in model.model_fields.items():
        if issubclass(model, Profile) and model is not Profile and key in Profile.model_fields:
            continue
        given = "required" if field.is_required() else default(field.get_default(call_default_factory=True))
        rows.append(f"| `{key}` | {word(hints[key])} | {given} | {meanings[key]} |")
    return "\n".join(rows)


def renewed(text: str) -> str:
    def fill(found: re.Match[str]) -> str:
        return f"{found[1]}\n{table(found[2])}\n{found[3]}"

    return re.sub(r"(<!-- keys of (\w+) -->)\n.*?(<!-- end -->)", fill, text, flags=re.DOTALL)


def blocks(language: str, page: Path = DOCS) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_tables_of_keys_are_those_of_the_models() -> None:
    text = DOCS.read_text()
    assert text == renewed(text), f"renew them: python {Path(__file__).name} --write"


@pytest.mark.parametrize("name", [name for name in MODELS if name != "local"])
def test_every_model_has_its_table(name: str) -> None:
    assert f"<!-- keys of {name} -->" in DOCS.read_text()


@pytest.mark.parametrize("name", MODELS)
def test_every_field_is_described(name: str) -> None:
    described = docstrings(MODELS[name])
    assert [field for field in MODELS[name].model_fields if field not in described] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_file_is_valid(page: Path) -> None:
    for example in blocks("toml", page):
        contents = parse_file(example.encode(), Path("/hermes.toml"), Origin("user", "docs"))
        profiles = Profiles(contents.entries)
        for name, written in tomllib.loads(example).get("backends", {}).items():
            if written.get("via") in {None, *profiles}:  # else it is in another example of the page
                assert parse_target(name, profiles).chain


def test_the_full_example_uses_every_section() -> None:
    assert set(tomllib.loads(max(blocks("toml"), key=len))) == set(KEYS)


def test_every_target_in_the_table_of_targets_is_one() -> None:
    section = DOCS.read_text().partition("## Targets")[2].partition("\n## ")[0]
    targets = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(targets) >= 6
    mine = {"sandbox": DockerProfile()}
    assert all(parse_target(target, mine).chain for target in targets)


def test_every_variable_is_described() -> None:
    text = DOCS.read_text()
    assert [name for name in VARIABLES if f"`{PREFIX}{name}`" not in text] == []


if __name__ == "__main__" and "--write" in sys.argv:
    DOCS.write_text(renewed(DOCS.read_text()))
