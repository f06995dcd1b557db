"""The advice of an audit, and its report as Markdown.

Tools' output and names are quoted in code, on one line each, so that they form no heading, link or image. A model's
paragraph is a code block for the same reason.
"""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OFTEN = 3
"""Times that something happens before the report advises about it."""
_SILENT = 0.5
"""Share of tasks without evidence above which the report advises about it."""
_WIDTH = 100
_TEXT = 300
_ROWS = (
    ("tasks", "tasks"),
    ("succeeded", "succeeded, by evidence"),
    ("failed", "failed, by evidence"),
    ("unknown", "without evidence"),
    ("rate", "success rate of those with evidence"),
    ("calls", "calls of tools"),
    ("failed_calls", "failed calls"),
    ("tokens", "tokens"),
    ("cost", "cost in US dollars"),
    ("seconds", "seconds"),
)


def create_advice(report: Mapping[str, Any]) -> list[str]:
    """Return the advice of a report, one line each. It takes no effect by itself."""
    return [*_advise_on_failures(report), *_advise_on_skills(report["skills"]), *_advise_on_evidence(report)]


def _advise_on_failures(report: Mapping[str, Any]) -> Iterator[str]:
    for each in report["failures"]:
        if each["times_in_all"] >= _OFTEN:
            yield (
                f"{code(each['tool'])} failed {each['times_in_all']} times with {code(each['line'])}: "
                "name the cause in a guide, or fix it in the target."
            )


def _advise_on_skills(skills: Mapping[str, Any]) -> Iterator[str]:
    for each in skills["worse"]:
        name, before = each["name"], each["before"]
        yield (
            f"Version {each['version']} of {code(name)} does worse than version {before}: "
            f"compare them, or run {code(f'hermes-exec skill rollback {name} {before}')}."
        )
    for each in skills["unloaded"]:
        if each["times"] >= _OFTEN:
            yield (
                f"{code(each['name'])} fitted {each['times']} requests that did not load it: "
                "say in its description when it is of use."
            )
    never = [each["name"] for each in skills["unused"]["listed"] if not each["latest"]]
    if never:
        names = ", ".join(map(code, never[:5]))
        yield f"No task has ever used {names}{' and others' if len(never) > 5 else ''}: describe or archive them."


def _advise_on_evidence(report: Mapping[str, Any]) -> Iterator[str]:
    these = report["these"]
    if these["unknown"] > these["tasks"] * _SILENT:
        yield (
            f"{these['unknown']} of {these['tasks']} tasks have no evidence: {code('chat --check COMMAND')}, "
            f"{code('/good')} and {code('/bad')} give it."
        )


def format_markdown(audit: Mapping[str, Any]) -> str:
    """Return the report of an audit, as `learning.audit.read_audits` has it, as Markdown."""
    report = audit["report"]
    at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(audit["at"]))
    lines = [f"# Audit {audit['number']}", "", f"Tasks {report['first']} to {report['last']}, {at} UTC.", ""]
    lines += ["| | these tasks | all tasks |", "|---|---|---|"]
    lines += [f"| {text} | {_number(report['these'][key])} | {_number(report['all'][key])} |" for key, text in _ROWS]
    lines += _section("Repeated failures", map(_format_failure, report["failures"]))
    lines += _section("Kinds of tasks", map(_format_kind, report["kinds"]))
    lines += _section("Skills", _format_skills(report["skills"]))
    lines += _section("Advice", report["advice"])
    if paragraph := audit.get("paragraph"):
        lines += ["", f"## Written by the model {code(paragraph['model'])}", ""]
        lines += [f"    {line}" for line in textwrap.wrap(flatten(paragraph["text"], 2000), _WIDTH)]
    return "\n".join([*lines, ""])


def code(text: object) -> str:
    """Return untrusted text as code on one line."""
    return f"`{flatten(str(text), _TEXT).replace('`', chr(39)) or ' '}`"


def _section(title: str, items: Iterator[str] | list[str]) -> list[str]:
    return ["", f"## {title}", "", *([f"- {each}" for each in items] or ["None."])]


def _format_failure(each: Mapping[str, Any]) -> str:
    return (
        f"{code(each['tool'])}, {code(each['line'])}: {each['times']} times; "
        f"in all {each['times_in_all']} times in {each['tasks_in_all']} tasks"
    )


def _format_kind(each: Mapping[str, Any]) -> str:
    cost = "unknown cost" if each["cost"] is None else f"${each['cost']:.4f}"
    return (
        f"{code(each['kind'])}: {each['tasks']} tasks, {each['tasks_in_all']} in all; on average {each['calls']:.1f} "
        f"calls, {each['failed_calls']:.1f} failed, {each['tokens']:.0f} tokens, {cost}, {each['seconds']:.1f} s; "
        f"{each['succeeded']} succeeded, {each['failed']} failed"
    )


def _format_skills(skills: Mapping[str, Any]) -> Iterator[str]:
    for each in skills["worse"]:
        yield (
            f"{code(each['name'])} got worse: version {each['before']} succeeded in {each['succeeded_before']} of "
            f"{each['tasks_before']} tasks, version {each['version']} in {each['succeeded']} of {each['tasks']}"
        )
    for each in skills["unloaded"]:
        tasks = ", ".join(map(str, each["tasks"]))
        yield f"{code(each['name'])} would have fitted {each['times']} requests and was not loaded: tasks {tasks}"
    unused = skills["unused"]
    for each in unused["listed"]:
        latest = f"last in task {each['latest']}" if each["latest"] else "never before either"
        yield f"{code(each['name'])} was not used, {latest}"
    if more := unused["count"] - len(unused["listed"]):
        yield f"{more} more were not used"


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
