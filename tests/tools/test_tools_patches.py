"""Changes to texts fit exactly or are refused, and a refused patch changes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.errors import UsageError
from hermes_exec_agent.tools import v4a
from tests.tools.conftest import agent_in

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "import os\n\n\ndef one():\n    return 1\n\n\ndef two():\n    return 1\n"


def changed(body: str, text: str | None = TEXT) -> v4a.FileChange:
    (operation,) = v4a.parse(f"*** Begin Patch\n{body}\n*** End Patch")
    return operation.change(text)


def test_a_hunk_is_found_after_its_anchor() -> None:
    made = changed("*** Update File: a\n@@ def two():\n-    return 1\n+    return 2").text
    assert made == TEXT[: -len("1\n")] + "2\n"


def test_several_hunks_come_in_their_order() -> None:
    body = (
        "*** Update File: a\n@@\n import os\n+import sys\n@@ def two():\n-    return 1\n+    return 2\n*** End of File"
    )
    assert changed(body).text == TEXT.replace("import os\n", "import os\nimport sys\n")[: -len("1\n")] + "2\n"


def test_blanks_that_a_model_got_wrong_are_forgiven() -> None:
    assert "return 5" in (changed("*** Update File: a\n@@\n def one(): \n-  return 1\n+    return 5").text or "")


def test_lines_without_old_ones_go_to_the_end() -> None:
    assert changed("*** Update File: a\n@@\n+last = 1").text == TEXT + "last = 1\n"


def test_line_ends_of_a_file_are_kept() -> None:
    assert changed("*** Update File: a\n@@\n-b\n+c", "a\r\nb\r\n").text == "a\r\nc\r\n"


def test_a_file_can_move_go_and_come() -> None:
    assert changed("*** Update File: a\n*** Move to: b\n@@\n-import os\n+import re").moved == "b"
    assert changed("*** Delete File: a").text is None
    assert changed("*** Add File: a\n+one\n+\n+two", None).text == "one\n\ntwo\n"


@pytest.mark.parametrize(
    ("body", "text", "says"),
    [
        ("*** Update File: a\n@@\n-no such line\n+x", TEXT, "hunk 1 does not fit a"),
        ("*** Update File: a\n@@\n-x\n+y", None, "there is no file a"),
        ("*** Add File: a\n+x", TEXT, "is there already"),
        ("*** Delete File: a", None, "no file a to delete"),
    ],
)
def test_what_does_not_fit_is_refused(body: str, text: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        changed(body, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "begins with"),
        ("*** Begin Patch\n*** Add File: a\n+x", "ends with"),
        ("*** Begin Patch\n*** End Patch", "changes nothing"),
        ("*** Begin Patch\nhello\n*** End Patch", "should name a file"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "begins with \\+"),
        ("*** Begin Patch\n*** Update File: a\n@@\n*x\n*** End Patch", "begins with a blank"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "nothing is to change"),
    ],
)
def test_what_is_no_patch_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        v4a.parse(text)


WORDS = (
    "*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Update File: a", "*** Delete File: a", "*** Move to: b",
    "*** End of File", "@@", "@@ def one():", "+x", "-import os", " import os", "", "x", "\t", "***",
)  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=10))
def test_no_text_makes_the_parser_fail_in_another_way(lines: list[str]) -> None:
    text = "\n".join(lines)
    for whole in (text, f"*** Begin Patch\n{text}\n*** End Patch"):
        try:
            for operation in v4a.parse(whole):
                operation.change(TEXT)
        except UsageError:
            pass


@given(st.lists(st.text("abc", max_size=3), min_size=1, max_size=8), st.data())
def test_replacing_any_line_by_its_patch_gives_that_text(lines: list[str], data: st.DataObject) -> None:
    unique = [f"{number}{line}" for number, line in enumerate(lines)]
    at = data.draw(st.integers(0, len(unique) - 1))
    body = f"*** Update File: a\n@@\n-{unique[at]}\n+new"
    expected = [*unique[:at], "new", *unique[at + 1 :]]
    assert changed(body, "\n".join(unique) + "\n").text == "\n".join(expected) + "\n"


@pytest.mark.parametrize(
    ("old", "everywhere", "says"),
    [("nothing", False, "is not in"), ("return 1", False, "2 times"), ("", True, "empty")],
)
def test_a_string_that_is_not_there_once_is_refused(old: str, everywhere: bool, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        v4a.Replace("a", old, "new", everywhere).change(TEXT)
    assert v4a.Replace("a", "return 1", "new", everywhere=True).change(TEXT).text == TEXT.replace("return 1", "new")


def test_a_patch_of_which_a_part_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("two\n")
    patch = (
        "*** Begin Patch\n*** Update File: a\n@@\n-one\n+new\n*** Add File: c\n+c\n"
        "*** Update File: b\n@@\n-three\n+new\n*** End Patch"
    )

    async def tried() -> dict[str, Any]:
        async with agent_in("local") as agent:
            await agent("terminal", command=f"cd '{tmp_path}'")
            return await agent("patch", mode="patch", patch=patch)

    told = asyncio.run(tried())
    assert told["error"]["type"] == "usage_error"
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a": "one\n", "b": "two\n"}


def test_files_move_and_go_in_the_place(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("two\n")
    patch = "*** Begin Patch\n*** Update File: a\n*** Move to: sub/c\n@@\n-one\n+new\n*** Delete File: b\n*** End Patch"

    async def tried() -> dict[str, Any]:
        async with agent_in("local") as agent:
            await agent("terminal", command=f"cd '{tmp_path}'")
            return await agent("patch", mode="patch", patch=patch)

    assert asyncio.run(tried())["ok"]
    assert {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")} == {"sub", "sub/c"}
    assert (tmp_path / "sub/c").read_text() == "new\n"
