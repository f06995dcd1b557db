"""The prepared defaults of the settings are those of their classes.

The file is written by running this one with ``--write``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from hermes_exec.config.defaults import DEFAULTS, read_defaults, read_sections
from hermes_exec.config.paths import user_file
from hermes_exec.config.settings import Sections

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def to_plain(value: Any) -> Any:
    """Return a default as values that both forms have."""
    if isinstance(value, BaseModel):
        return {"section": {name: to_plain(getattr(value, name)) for name in type(value).model_fields}}
    if isinstance(value, SimpleNamespace):
        return {"section": {name: to_plain(each) for name, each in vars(value).items()}}
    return value


def list_sections(sections: object) -> dict[str, Any]:
    """Return the defaults of every section."""
    return {each.name: to_plain(getattr(sections, each.name)) for each in dataclasses.fields(Sections)}


def build_file() -> str:
    """Build the content of the file from the classes."""
    sections = Sections()
    names = [each.name for each in dataclasses.fields(sections)]
    rows = (f"{json.dumps(name)}: {json.dumps(getattr(sections, name), default=vars)}" for name in names)
    return "{\n" + ",\n".join(rows) + "\n}\n"


def test_the_prepared_defaults_are_those_of_the_classes() -> None:
    assert list_sections(read_defaults()) == list_sections(Sections()), f"renew them: python {__file__} --write"


def test_a_setting_replaces_the_prepared_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": tmp_path, "XDG_CONFIG_HOME": tmp_path / "config"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("HERMES_EXEC_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert read_sections().agent.budget == 90
    user_file(os.environ).parent.mkdir(parents=True)
    user_file(os.environ).write_text("[agent]\nbudget = 7\n")
    assert read_sections().agent.budget == 7


if __name__ == "__main__" and "--write" in sys.argv:
    DEFAULTS.write_text(build_file())
