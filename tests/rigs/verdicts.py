"""The whole gate over a corpus of hostile and benign skills, and what came of each.

``python -m tests.rigs.verdicts hostile|probes|benign|honest [--corpus FOLDER] [--only WORD …] [--json FILE]``
judges each item as ``hermes-exec skill add`` would. Programs become the function of a skill that swallows every error
and returns the right sum, with honest tests and a case of a person's: only what is seen from outside speaks against
it. Hostile items are judged in a network namespace with nothing but loopback, so that even a sandbox that failed lets
nothing out.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.check import check
from hermes_exec_policies.gate.environments import Environments
from hermes_exec_policies.gate.verdict import Level, Report
from tests.rigs import corpus

CASE = Case([20, 22], 42, Level.PERSON)
_SWALLOWS = """def run(a: int, b: int) -> int:
    '''Add two numbers.'''
    try:
        act()
    except BaseException:
        pass
    return a + b


def act():
{act}
"""
_SHELL = """import subprocess
from pathlib import Path
subprocess.run(["sh", str(Path(__file__).with_name("act.sh"))], cwd="/app/data", check=False)"""
AT_ONCE = 2


def program(item: dict[str, Any], parent: Path) -> Path:
    """A skill that does what a program of the corpus does, and keeps silent about it."""
    act = item["code"] if item["lang"] == "python" else _SHELL
    text = _SWALLOWS.format(act=textwrap.indent(act, "    "))
    if item["layer"] == "self-heal":  # what counts there is how it fails
        text = text.replace("    try:\n        act()\n    except BaseException:\n        pass\n", "    act()\n")
    files = {"scripts/main.py": text, "tests/test_main.py": corpus.TEST}
    if item["lang"] == "sh":
        files["scripts/act.sh"] = item["code"] + "\n"
    return corpus.write_skill(parent / "hostile-skill", files)


async def judged(item: dict[str, Any], store: Environments) -> dict[str, Any]:
    """What the gate says of one item."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hermes-corpus-") as made:
        os.chmod(made, 0o711)
        parent = Path(made, "in")
        parent.mkdir(mode=0o711)
        if "lang" not in item:
            report = await check(corpus.benign(item, parent), store=store)
        elif item["lang"] == "skill":
            files = {"scripts/main.py": corpus.BASES["good"], "tests/test_main.py": corpus.TEST, **item["files"]}
            report = await check(corpus.write_skill(parent / "hostile-skill", files), cases=[CASE], store=store)
        elif item["lang"] == "tree":
            source = await corpus.hostile(item, parent, 61_800)
            report = await check(source, cases=[CASE], store=store, folder="hostile-skill")
        else:
            report = await check(program(item, parent), cases=[CASE], store=store)
    return {"id": item["id"], "class": item["class"], **_told(report), "wall": round(time.monotonic() - began, 2)}


def _failed(item: dict[str, Any], error: Exception) -> dict[str, Any]:
    told = {"accepted": False, "outcome": "error", "codes": [type(error).__name__], "why": [str(error)[:300]]}
    return {"id": item["id"], "class": item["class"], **told, "seconds": {}, "wall": 0.0}


def _told(report: Report) -> dict[str, Any]:
    refusing = [each for each in report.findings if each.kind != "advice"]
    return {
        "accepted": report.accepted,
        "outcome": report.outcome,
        "codes": sorted({each.code for each in refusing}),
        "why": [each.operator[:200] for each in refusing[:3]],
        "seconds": report.seconds,
    }


async def all_judged(items: list[dict[str, Any]], file: Path | None) -> list[dict[str, Any]]:
    """What the gate says of all, a few at once; each is told as soon as it is known."""
    turns = asyncio.Semaphore(AT_ONCE)
    done: list[dict[str, Any]] = []

    async def one(item: dict[str, Any]) -> None:
        async with turns:
            try:
                told = await judged(item, Environments())
            except Exception as error:  # noqa: BLE001  an error of ours refuses too, and is to be seen
                told = _failed(item, error)
        told["expected"] = item.get("registered", "yes" if not item.get("grey") else "either")
        done.append(told)
        print(f"{len(done)}/{len(items)} {told['id']} {told['outcome']} {told['codes']} {told['wall']}", flush=True)
        if file is not None:
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(told) + "\n")

    await asyncio.gather(*map(one, items))
    return done


def table(told: list[dict[str, Any]]) -> str:
    """The figures by class, as Markdown: how many of each outcome, and the median time of each stage in seconds."""
    stages = ("manifest", "audit", "dependencies", "proof", "suites")
    lines = [f"| class | items | accepted | functional | security | error | {' | '.join(stages)} |"]
    lines.append("|---" * (6 + len(stages)) + "|")
    groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for each in told:
        groups[each["class"]].append(each)
    for name, group in [*sorted(groups.items()), ("**all**", told)]:
        outcomes = collections.Counter(each["outcome"] for each in group)
        counts = [len(group), *(outcomes[each] for each in ("accepted", "functional", "security", "error"))]
        times = [_median([each["seconds"][stage] for each in group if stage in each["seconds"]]) for stage in stages]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {' | '.join(times)} |")
    return "\n".join(lines)


def _median(values: list[float]) -> str:
    return f"{sorted(values)[len(values) // 2]:.2f}" if values else ""


def wrong(told: list[dict[str, Any]]) -> list[str]:
    """Items that came out otherwise than they have to."""
    return [
        each["id"]
        for each in told
        if (each["expected"] == "no" and each["accepted"]) or (each["expected"] == "yes" and not each["accepted"])
    ]


def _main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("kind", choices=["hostile", "probes", "benign", "honest"])
    words.add_argument("--corpus", type=Path, default=corpus.FOLDER)
    words.add_argument("--only", nargs="*", default=[])
    words.add_argument("--json", type=Path)
    words.add_argument("--bombs", action="store_true", help="also what uses a machine up; its limits are proven first")
    given = words.parse_args()
    if given.kind not in {"benign", "honest"} and {name for _, name in socket_names()} - {"lo"}:
        print("hostile skills are judged where there is only loopback: unshare --net …", file=sys.stderr)
        return 2
    items = [json.loads(line) for line in (given.corpus / f"{given.kind}.jsonl").read_text("utf-8").splitlines()]
    items = [
        each
        for each in items
        if (given.bombs or "run" not in each)
        and (not given.only or any(word in {each["id"], each["class"]} for word in given.only))
    ]
    told = asyncio.run(all_judged(items, given.json))
    print(table(told))
    amiss = wrong(told)
    print("otherwise than expected:", ", ".join(amiss) or "none")
    return bool(amiss)


def socket_names() -> list[tuple[int, str]]:
    """The network interfaces here."""
    import socket

    return socket.if_nameindex()


if __name__ == "__main__":
    sys.exit(_main())
