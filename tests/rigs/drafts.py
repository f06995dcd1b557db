"""Honest and cheating drafts, each with a judge that answers well: ``python -m tests.rigs.drafts`` judges them all.

A line of ``corpus/drafts.jsonl`` is a request, the cases that a good separate context makes of it, a draft that does
what was asked for, and one that only looks so (``class`` says how).
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hermes_exec.errors import HermesError
from hermes_exec_agent.models.scripted import ScriptedModel
from hermes_exec_agent.skills.build.builder import Requester, SkillBuilder
from hermes_exec_agent.skills.registry.registry import Registry
from tests.rigs import corpus
from tests.rigs.skill_makers import home_in

_AT_ONCE = 2
REFUSED = "refused"


async def level_of(item: dict[str, Any], kind: str, folder: Path, *, judge: str | None = None) -> tuple[str, str]:
    """The level at which a draft of this kind is registered, or that it is refused; and why."""
    model = ScriptedModel([json.dumps(item[kind])])
    asked = ScriptedModel([json.dumps(item["judge"]) if judge is None else judge])
    maker = Requester(model="scripted", shells=("bubblewrap",))
    shop = SkillBuilder(Registry(home_in(folder)), maker, model, judge=asked)
    try:
        version = await shop.compile(item["name"], item.get("task", item["request"]), item["request"])
    except HermesError as error:
        told = model.requests[-1].messages[-1].content if len(model.requests) > 1 else str(error)
        return REFUSED, " ".join(told.split())
    why = [
        each["operator"]
        for each in version.evidence["findings"]
        if each["code"] in {"suites.unseen-file", "suites.unchecked"}
    ]
    return version.level, "; ".join(why)


async def main(name: str, *ids: str) -> None:
    """Judge all of a file, two at a time; a line for each."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def line(item: dict[str, Any], kind: str) -> tuple[str, str]:
        async with turn:
            with tempfile.TemporaryDirectory(prefix="drafts-") as room:
                level, why = await level_of(item, kind, Path(room))
        print(f"{kind:7} {level:12} {item['id']:24} {item['class']:28} {why[:200]}", flush=True)
        return kind, level

    chosen = [item for item in corpus.items(name) if not ids or item["id"] in ids]
    found = await asyncio.gather(*(line(item, kind) for item in chosen for kind in ("honest", "cheat") if kind in item))
    for kind in ("honest", "cheat"):
        levels = [level for each, level in found if each == kind]
        print(f"{kind}: {len(levels)}, {', '.join(f'{levels.count(each)} {each}' for each in sorted(set(levels)))}")


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ["drafts"])))
