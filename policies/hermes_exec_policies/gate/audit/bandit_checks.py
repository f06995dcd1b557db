"""Run bandit. A few of its checks refuse (``rules.toml``); the others advise, as they hit honest code as often."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.audit.rules import load_rules
from hermes_exec_policies.gate.verdict import Finding, advice, functional

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_HINTS = 20


def run_bandit(path: str, text: str) -> list[Finding]:
    """Return bandit's findings of medium severity and confidence, and those of checks that refuse."""
    # It uses what Python has marked as going away, from its import on; its log goes nowhere.
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from bandit.core.config import BanditConfig
        from bandit.core.manager import BanditManager

        manager = BanditManager(BanditConfig(), "file", quiet=True, ignore_nosec=True)
        manager._parse_file(path, io.BytesIO(text.encode()), [path])  # noqa: SLF001  its only entry for text in memory
        issues = [(each.test_id, each.text, each.lineno) for each in manager.get_issue_list("MEDIUM", "MEDIUM")]
    return list(_findings(path, issues))


def _findings(path: str, issues: list[tuple[str, str, int]]) -> Iterator[Finding]:
    refusing = load_rules()["bandit"]
    hints = 0
    for test, text, line in issues:
        if (rule := refusing.get(test)) is not None:
            yield functional(rule.code, rule.explain(f"bandit {test}: {text}"), path, line)
        elif (hints := hints + 1) <= _MAX_HINTS:
            yield advice("audit.hint", f"bandit {test}: {text}", path, line)
