"""Changes of one configuration file: what applies, what is refused, and what a person has to see of it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.errors import ConfigError, HermesError, UsageError
from hermes_exec_agent.learning.proposals_edit import (
    MOST,
    Conflict,
    apply_change,
    check_file,
    make_diff,
    read_values,
    reverse_change,
)
from hermes_exec_agent.learning.proposals_judge import judge_change, read_files

OURS = "# mine\n[limits]\ntimeout_s = 60.0  # a minute\n\n[models.main]\nkey = 'env:K'\n"
POLICY = 'extends = "skill-run"\nsummary = "of mine"\n'


def judge(text: str, change: str, file: str = "hermes.toml", **more: str) -> list[str]:
    files = {"hermes.toml": text, **more}
    return judge_change(files, file, apply_change(file, change, files.get(file))).marks


@pytest.mark.parametrize(
    "file",
    [
        "../x.toml", "policies/../hermes.toml", "/etc/passwd", "policies//x.toml", "policies/x.toml\n", "hermes.toml/",
        "policies/.x.toml", "policies/a/b.toml", "trust.json", "policies/x", "\x1b]0;x", "Hermes.toml", "",
    ],
)  # fmt: skip
def test_no_other_file_can_be_named(file: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_file(file)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("limits.timeout_s = 600.0\x1b[2J", "unprintable character"),
        ("limits.timeout_s = 600.0\r\n", "unprintable character"),
        ("limits.timeout_s = \u202e600.0", "unprintable character"),
        ("limits.timeout_s =", "not a line"),
        ("limits.timeout_s = [", "not a line"),
        ("", "empty"),
        ("[limits]", "not a line"),
        ("a.b = 1\n" * MOST, "at most"),
        ("--- a/hermes.toml\n+++ b/../x\n@@ -1 +1 @@\n-# mine\n+# yours\n", "should change hermes.toml alone"),
        ("--- a/hermes.toml\n+++ /dev/null\n@@ -1 +0,0 @@\n-# mine\n", "should change hermes.toml alone"),
        ("diff --git a/hermes.toml b/x\nrename from hermes.toml\n@@ -1 +1 @@\n", "should change hermes.toml alone"),
        ("diff --git a/hermes.toml b/hermes.toml\nnew file mode 120000\n", "should change hermes.toml alone"),
        ("diff --git a/hermes.toml b/hermes.toml\nGIT binary patch\n", "should change hermes.toml alone"),
        ("--- a/hermes.toml\n+++ b/hermes.toml\n@@ -1 +1 @@\n-# mine\n+# yours\n--- a/x\n+++ b/x\n", "conflict"),
        ("--- a/hermes.toml\n+++ b/hermes.toml\n@@ -1 +1 @@\n # mine\n", "changes nothing"),
        ("--- a/hermes.toml\n+++ b/hermes.toml\n", "has no part"),
        ("--- a/hermes.toml\n+++ b/hermes.toml\n@@ -1 +1 @@\n-# theirs\n+# yours\n", "conflict"),
        ("--- /dev/null\n+++ b/hermes.toml\n@@ -0,0 +1 @@\n+# yours\n", "there is such a file"),
    ],
)  # fmt: skip
def test_a_change_that_is_not_of_this_file_is_refused(change: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        apply_change("hermes.toml", change, OURS)
    assert str(caught.value).isprintable()


def test_a_value_is_set_in_its_place_and_other_lines_stay() -> None:
    changed = apply_change("hermes.toml", 'limits.timeout_s = 30.0\nagent.approvals.terminal = "deny"', OURS)
    assert changed == (
        "# mine\n[limits]\ntimeout_s = 30.0\n\n[models.main]\nkey = 'env:K'\n\n[agent.approvals]\nterminal = \"deny\"\n"
    )
    assert read_values("limits.timeout_s = 30.0\nagent.budget = 3", OURS) == {
        "limits.timeout_s": "60.0",
        "agent.budget": "",
    }
    with pytest.raises(UsageError, match="as a unified diff"):
        apply_change("hermes.toml", "limits.timeout_s = 1.0", "limits = { timeout_s = 2.0 }\n")
    with pytest.raises(UsageError, match="as a unified diff"):
        apply_change("hermes.toml", "agent.budget = 1", 'text = """\n[agent]\n"""\n[agent]\n')


LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "", "# c", "[x]", "--- y", "+++ z", "-- w"]), max_size=9)


@given(LINES, LINES, LINES)
def test_a_diff_applies_where_it_fits_and_is_reversed_exactly(one: list[str], two: list[str], more: list[str]) -> None:
    before, after = ("".join(f"{line}\n" for line in lines) for lines in (one, two))
    if before == after or not before or not after:
        return
    diff = make_diff("hermes.toml", before, after)
    assert apply_change("hermes.toml", diff, before) == after
    assert reverse_change("hermes.toml", before, after, after) == before
    elsewhere = after + "# end\n" + "".join(f"# {line}\n" for line in more)
    try:
        reversed_there = reverse_change("hermes.toml", before, after, elsewhere)
    except Conflict:
        return
    assert reversed_there is not None
    assert reversed_there.endswith("".join(f"# {line}\n" for line in more))


@pytest.mark.parametrize(
    ("text", "change", "marks"),
    [
        (OURS, "limits.timeout_s = 30.0", []),
        (OURS, "limits.timeout_s = 600.0", ["LOOSENS limits.timeout_s: 60.0 -> 600.0"]),
        ("", "limits.timeout_s = 600.0", []),
        ("", "limits.max_output = 600", ["LOOSENS limits.max_output: none -> 600"]),
        ("", 'agent.approvals.terminal = "deny"', []),
        ("", 'agent.approvals.terminal = "ask"', ["LOOSENS agent.approvals.terminal: none -> ask"]),
        ("[agent.approvals]\npatch = 'allow'\n", 'agent.approvals.patch = "ask"', []),
        ("[agent.approvals]\npatch = 'ask'\n", 'agent.approvals.patch = "allow"',
         ["LOOSENS agent.approvals.patch: ask -> allow"]),
        ("", "agent.budget = 50", []),
        ("", "agent.budget = 91", ["LOOSENS agent.budget: 90 -> 91"]),
        ("", "agent.guardrails.tool_failures = [2, 8]", []),
        ("", "agent.guardrails.tool_failures = [3, 0]", ["LOOSENS agent.guardrails.tool_failures: [3, 8] -> [3, 0]"]),
        ("", "agent.guardrails.same_results = [4, 5]", ["LOOSENS agent.guardrails.same_results: [2, 5] -> [4, 5]"]),
        ("[agent]\ntools = ['terminal']\n", 'agent.tools = ["terminal", "patch"]',
         ["LOOSENS agent.tools: more tools: patch"]),
        ("", 'agent.tools = ["minimal"]', []),
        ("", 'agent.instructions = "be brief"', ["CHANGES text for the model: agent.instructions"]),
        ("", 'agent.descriptions.patch = "edits"', ["CHANGES text for the model: agent.descriptions.patch"]),
    ],
)  # fmt: skip
def test_what_may_permit_more_is_marked(text: str, change: str, marks: list[str]) -> None:
    assert judge(text, change) == marks


def test_the_end_of_a_limit_is_marked() -> None:
    change = make_diff("hermes.toml", OURS, OURS.replace("timeout_s = 60.0  # a minute\n", ""))
    assert judge(OURS, change) == ["LOOSENS limits.timeout_s: 60.0 -> none"]
    denied = "[agent.approvals]\nterminal = 'deny'\n"
    assert judge(denied, make_diff("hermes.toml", denied, "[agent]\n")) == [
        "LOOSENS agent.approvals.terminal: deny -> none"
    ]


@pytest.mark.parametrize(
    "change",
    [
        'models.main.base_url = "http://evil.test"', 'hooks = ["x"]', "audit.enabled = false", 'agent.person = "eve"',
        "learning.proposals = true", 'backends.x.type = "local"', 'default = "x"', "memory.memory_enabled = true",
        "agent.budgets = 3", "agent.budget = 0", 'agent.budget = "many"', 'agent.approvals.terminl = "deny"',
        'agent.approvals.terminal = "yes"', "limits.timeout_s = -1.0", 'agent.tools = ["no-such"]',
        "limits.timeout_s = 60.0", "agent = 1",
    ],
)  # fmt: skip
def test_what_is_invalid_or_no_business_of_a_proposal_is_refused(change: str) -> None:
    with pytest.raises(HermesError):
        judge(OURS, change)


def test_policies_are_compared_with_all_that_extend_them() -> None:
    mine = {"policies/base.toml": POLICY, "policies/sub.toml": 'extends = "base"\nsummary = "of it"\n'}
    change = 'network.access = "open"\nnetwork.sockets = ["unix", "inet", "netlink"]'
    marks = judge("", change, "policies/base.toml", **mine)
    assert {each.partition(":")[0] for each in marks} == {"LOOSENS base", "LOOSENS sub"}
    assert judge("", "limits.processes = 5", "policies/base.toml", **mine) == []
    assert judge("", POLICY, "policies/new.toml", **mine) == ["LOOSENS the policy new, which is new"]
    with pytest.raises(UsageError, match="built-in"):
        judge("", POLICY, "policies/workspace.toml", **mine)
    for broken in ('files.root = "any"', 'extends = "sub"', 'nonsense = "x"'):
        with pytest.raises(ConfigError) as caught:
            judge("", broken, "policies/base.toml", **mine)
        assert "/tmp" not in str(caught.value)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "hermes.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"hermes\.toml"):
        read_files(tmp_path)


def spell(keys: tuple[str, str], value: object) -> str:
    """A line of a change; JSON of these values is TOML, too."""
    return f"{keys[0]}.{json.dumps(keys[1])} = {json.dumps(value, ensure_ascii=False)}"


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(), st.integers(-9, 9),
    st.text(st.characters(min_codepoint=32, max_codepoint=300), max_size=9).filter(str.isprintable),
    st.lists(st.text("ab\\\"'#[]=", max_size=4), max_size=3),
)  # fmt: skip


@given(
    st.dictionaries(st.tuples(st.sampled_from("xyz"), st.sampled_from(["k", "l", "a b"])), VALUES, min_size=1), VALUES
)
def test_a_line_changes_one_value_and_no_other(table: dict[tuple[str, str], Any], value: Any) -> None:
    text = ""
    for keys, each in table.items():
        text = apply_change("hermes.toml", spell(keys, each), text)
    keys = next(iter(table))
    found = tomllib.loads(apply_change("hermes.toml", spell(keys, value), text))
    assert {(a, b): each for a, part in found.items() for b, each in part.items()} == {**table, keys: value}
