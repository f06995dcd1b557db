"""The wire formats of the SDKs are those that the servers of the tests were written for."""

from __future__ import annotations

import sys
from importlib.metadata import version

import pytest

from tests.rigs import wire_contract
from tests.rigs.wire_contract import PARTS, differences, recorded, spoken


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 spells types otherwise than what is recorded")
@pytest.mark.parametrize("part", PARTS)
def test_an_sdk_speaks_what_is_recorded(part: str) -> None:
    content = recorded(part)
    changed = differences(content["wire"], spoken(part))
    assert changed == [], (
        f"{part} {content['version']} -> {version(part)} changed what goes over the wire. Model it, then: "
        "python -m tests.rigs.wire_contract --record"
    )
    assert content["version"] == version(part)


def test_a_difference_is_said_line_by_line() -> None:
    before = {"A.a": "1 string", "A.b": "2 bool", "A.c": "3 bytes"}
    now = {"A.a": "1 string", "A.b": "4 bool", "A.d": "5 bytes"}
    assert differences(before, now) == ["- A.c: 3 bytes", "+ A.d: 5 bytes", "! A.b: 2 bool -> 4 bool"]


def test_what_is_recorded_covers_every_part() -> None:
    assert sorted(file.stem for file in wire_contract.FOLDER.glob("*.json")) == sorted(PARTS)
