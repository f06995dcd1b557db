"""The corpus of hostile and benign skills as folders. What an item's text does, it does in a throw-away sandbox."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox import Bind, Limits
from hermes_exec_policies.gate.archive_members import unpack
from hermes_exec_policies.gate.tree import Tree, copy_tree
from tests.rigs.sandboxes import PYTHON, specification

FOLDER = Path(__file__).parents[1] / "gate" / "corpus"
BASES = {"good": "def run(a,b):\n    return a+b\n", "wrong": "def run(a,b):\n    return a+b+1\n"}
TEST = "import sys\nsys.path.insert(0,'scripts')\nimport main\ndef test_sum():\n    assert main.run(2,2)==4\n"
ABOUT = "---\nname: {name}\ndescription: {about}\n---\n# Use\nRun scripts/main.py.\n"
_START = """
import os, sys
os.chdir(sys.argv[1])
print('STARTED', flush=True)
exec(compile(sys.stdin.read(), 'item', 'exec'))
"""


def items(name: str) -> list[dict[str, Any]]:
    """The lines of a file of the corpus."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]


def texts(item: dict[str, Any]) -> dict[str, str]:
    """The files of a benign item or of a skill."""
    code = {"scripts/main.py": item["code"], "tests/test_main.py": item["test"]} if "code" in item else {}
    return code | (item.get("files") or {})


def write_skill(folder: Path, files: dict[str, str]) -> Path:
    """A skill of these files; SKILL.md is made where it is not among them."""
    for path, text in {"SKILL.md": ABOUT.format(name=folder.name, about="Adds two numbers."), **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def correct(item: dict[str, Any], parent: Path) -> Path:
    """The skill of a benign item that is refused at first, after the change that the message names."""
    return write_skill(benign(item, parent), item["corrected"])


def benign(item: dict[str, Any], parent: Path) -> Path:
    """The skill of a benign item."""
    needs = " ".join(item.get("needs") or [])
    about = ABOUT.format(name=item["id"], about=f"Does what {item['id']} says.")
    if needs:
        about = about.replace("\n---\n# Use", f"\nmetadata:\n  needs-packages: {needs}\n---\n# Use")
    files = {"SKILL.md": about, "scripts/main.py": item["code"], "tests/test_main.py": item["test"]}
    return write_skill(parent / item["id"], files | (item.get("files") or {}))


async def hostile(item: dict[str, Any], parent: Path, uid: int) -> Path:
    """What a hostile item of the kind ``tree`` leaves: a folder, or the archive in it."""
    base = parent / "hostile-skill"
    write_skill(base, {"scripts/main.py": BASES[item["base"]], "tests/test_main.py": TEST})
    for path in (parent, *parent.rglob("*")):
        os.chown(path, uid, uid)
    confinement = specification(uid=uid, more_binds=(Bind(source=str(parent), target="/given", writable=True),))
    words = [PYTHON, "-I", "-B", "-c", _START, "/given/hostile-skill"]
    async with await start(
        confinement, words, stdin=item["code"].encode(), limits=Limits(wall_s=120, output=1 << 20)
    ) as run:
        run.go()
        ended = await run.wait()
    assert ended.stdout.startswith(b"STARTED"), (item["id"], ended)
    assert ended.exit.code == 0, (item["id"], ended)
    left = await asyncio.to_thread(lambda: sorted(parent.iterdir()))
    assert len(left) == 1, (item["id"], left)
    archives = [left[0] / name for name in ("out.tar", "out.zip", "out.tgz") if (left[0] / name).is_file()]
    return archives[0] if archives else left[0]


def taken(source: Path, into: Path) -> Tree:
    """The files of a folder or an archive, as the gate takes them."""
    return unpack(source, into) if source.is_file() else copy_tree(source, into)


def skill(item: dict[str, Any], parent: Path) -> Path:
    """The skill of an item that has all of its files; what most have alike is left out of it."""
    usual = {"scripts/main.py": "def run(a: int, b: int) -> int:\n    '''Add.'''\n    return a + b\n"}
    usual |= {"tests/test_main.py": TEST.replace("'scripts'", "__file__.rpartition('/tests/')[0] + '/scripts'")}
    given: dict[str, str] = item["files"]
    missing = {
        path: text for path, text in usual.items() if not any(each.startswith(path.partition("/")[0]) for each in given)
    }
    return write_skill(parent / item["id"], missing | given)


def guide(item: dict[str, Any], parent: Path) -> Path:
    """The folder of a guide; its ``data`` are bytes in base64."""
    folder = write_skill(parent / item["id"], item["files"])
    for path, text in item["data"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(base64.b64decode(text))
    return folder
