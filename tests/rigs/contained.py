"""What stops each hostile item: ``python -m tests.rigs.contained [--acts] [--corpus FOLDER] [--write]``.

Items whose text no certain rule refuses are run: acts in a sandbox of the policy, skills by the whole gate. Their
effect is observed from outside. ``--acts`` leaves out the skills, and ``--write`` puts the table into docs/security.md.
It starts itself again in a network namespace with nothing but a loopback, so that even a sandbox that fails lets
nothing out.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import sys
from pathlib import Path
from typing import Any

from hermes_exec_policies.gate.analysis.audit import examine_texts
from hermes_exec_policies.gate.environments import Environments
from hermes_exec_policies.gate.verdict import Kind
from hermes_exec_policies.start_program import LOCAL
from tests.rigs import controls, corpus, hostile, matrix, verdicts
from tests.rigs.tables import replace_block

BEGIN, END = "<!-- what stops hostile items: written by tests/rigs/contained.py -->", "<!-- end of what stops them -->"
STOPPERS = {
    "audit": "certain rule", "manifest": "structure", "dependencies": "packages", "denied": "act seen in a run",
    "suites": "cases, tests, files", "blocked": "sandbox", "limit": "limit of the sandbox", "private": "harmless",
    "accepted": "accepted, nothing seen", "escaped": "NOTHING", "invalid": "DID NOT RUN",
}  # fmt: skip
_AT_ONCE = 2
_APART = "HERMES_EXEC_CONTAINED_APART"


def refused_by_text(item: dict[str, Any]) -> bool:
    """Whether a certain rule refuses an item."""
    name = "scripts/act.sh" if item.get("lang") == "sh" else "scripts/main.py"
    files = item.get("files") or {name: item["code"]}
    return any(each.kind is not Kind.ADVICE for each in examine_texts(files))


async def stop_acts(items: list[dict[str, Any]]) -> dict[str, str]:
    """Return what stopped each act: the rule, or else the sandbox in which it ran; by its id."""
    found = {item["id"]: "audit" for item in items if refused_by_text(item)}
    left = [item for item in items if item["id"] not in found]
    return found | {act.id: act.outcome for act in await hostile.run_all(matrix.starter(LOCAL), left)}


async def stop_skills(items: list[dict[str, Any]]) -> dict[str, str]:
    """Return the stage of the gate that stopped each skill, by its id."""
    turns, store = asyncio.Semaphore(_AT_ONCE), Environments()

    async def one(item: dict[str, Any]) -> tuple[str, str]:
        async with turns:
            seen = await verdicts.judged({"lang": "skill", "class": item.get("found", "")} | item, store)
        stages = [code.partition(".") for code in seen["codes"]]
        if any(code.startswith("denied") for _, _, code in stages):
            return item["id"], "denied"
        return item["id"], stages[0][0] if stages else "accepted"

    return dict(await asyncio.gather(*map(one, items)))


def table(items: list[dict[str, Any]], stopped: dict[str, str]) -> str:
    """Return the matrix of classes and what stopped their items."""
    used = [each for each in STOPPERS if each in stopped.values()]
    lines = [f"| class | items | {' | '.join(STOPPERS[each] for each in used)} |", "|---" * (len(used) + 2) + "|"]
    groups: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for item in items:
        groups[item["class"]][stopped[item["id"]]] += 1
        groups["**all**"][stopped[item["id"]]] += 1
    for name in [*sorted(groups.keys() - {"**all**"}), "**all**"]:
        cells = [str(groups[name][each] or "") for each in used]
        lines.append(f"| {name} | {groups[name].total()} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acts", action="store_true")
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if not os.environ.get(_APART):
        again = 'ip link set lo up && exec "$0" -m tests.rigs.contained "$@"'
        command = ["unshare", "--net", "sh", "-c", again, sys.executable, *sys.argv[1:]]
        os.execvpe("unshare", command, {**os.environ, _APART: "1"})
    acts = [item for item in hostile.acts(given.corpus / "hostile.jsonl") if item["id"] in controls.read_controls()]
    stopped = asyncio.run(stop_acts(acts))
    items = list(acts)
    if not given.acts:
        lines = (given.corpus / "hostile.jsonl").read_text("utf-8").splitlines()
        known = {item["id"] for item in hostile.acts(given.corpus / "hostile.jsonl")}
        skills = [each for each in map(json.loads, lines) if each["id"] not in known and "run" not in each]
        skills += corpus.items("probes") + [{"class": "tricks"} | each for each in corpus.items("tricks")]
        stopped |= asyncio.run(stop_skills(skills))
        items += skills
    told = table(items, stopped)
    print(told)
    if given.write:
        replace_block(BEGIN, END, told)
    missed = [name for name, how in stopped.items() if how in {"escaped", "invalid"}]
    print("not contained:", ", ".join(missed) or "none")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(_main())
