"""The table of hostile acts in docs/security.md: ``python -m tests.rigs.matrix`` runs them everywhere and writes it.

It is for root. It starts itself again in a network namespace with nothing but a loopback, with an engine of its own, so
that even a sandbox that fails lets nothing out. With ``KIND IMAGE ENGINE USER`` it runs them in one kind of place, and
prints what came of each.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hermes_exec
import hermes_exec_backends
from hermes_exec_backends.sandbox import Confinement
from hermes_exec_backends.sandbox.control import launcher_payload
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.canaries import prove as proving
from hermes_exec_policies.canaries.deviations import find_deviations
from hermes_exec_policies.canaries.judge import Verdict
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.load import load_policy, override_policy
from hermes_exec_policies.render import apparmor
from hermes_exec_policies.start_program import LOCAL, SandboxTarget, start
from tests.rigs import controls, hostile, images, vm
from tests.rigs.layers import ALWAYS, LAYERS, QUICK
from tests.rigs.machine import there
from tests.rigs.tables import replace_block

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_backends.sandbox.run import Run

POLICY = "skill-validate"
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".cache" / "matrix"
NOBODY = "65534"
QUICKLY = "HERMES_EXEC_MATRIX_QUICKLY"
"""Set where those acts are left out that are ended by a clock."""
MACHINE = "bubblewrap with AppArmor"
_LAST = "Apptainer, as a user"
"""The last one before the machine that is emulated, which takes longest."""
_APART = "HERMES_EXEC_MATRIX_APART"
"""Set where it was started again."""
BEGIN, END = "<!-- hostile acts: written by tests/rigs/matrix.py -->", "<!-- end of hostile acts -->"
_WORDS = {"blocked": "blocked", "limit": "ended by a limit", "private": "allowed", "unheld": "not enforceable"}
_DRIVER = """\
import asyncio, json, os, pickle, subprocess, sys
sys.path.insert(0, "/share/lib")
import dataclasses, hostile
from pathlib import Path
from hermes_exec_backends.bubblewrap.start import start
subprocess.run(["apparmor_parser", "-r", "-K", "/share/profile"], check=True)
with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as file:
    file.write("+memory +pids +cpu")
with open("/share/specification", "rb") as file:
    specification, limits = pickle.load(file)
async def held(folder, words, wall_s):
    (skill,) = (bind for bind in specification.binds if bind.target == hostile.SKILL)
    others = (bind for bind in specification.binds if bind is not skill)
    wanted = dataclasses.replace(specification, binds=(*others, dataclasses.replace(skill, source=folder)))
    run = await start(wanted, words, limits=dataclasses.replace(limits, wall_s=wall_s))
    label = run.facts.next_label.partition(" (")[0]
    return run, [] if label and label == specification.apparmor else [f"the profile is {label!r}"]
with open("/share/found", "a+") as file:
    file.seek(0)
    known = {json.loads(line)["id"] for line in file}
    items = [item for item in hostile.acts(Path("/share/corpus")) if item["id"] not in known]
    def told(act):
        print(json.dumps(dataclasses.asdict(act)), file=file, flush=True)
    asyncio.run(hostile.run_all(held, items, wall_s=20, told=told))
"""


def starter(place: SandboxTarget) -> hostile.Starter:
    """How a sandbox of the policy is made in a kind of place."""

    async def held(folder: str, words: list[str], wall_s: float) -> tuple[Run, list[str]]:
        readonly = {folder: hostile.SKILL}
        specification, limits = build_confinement(
            load_policy(POLICY), this_machine(), readonly=readonly, cwd=hostile.SKILL, place=place.kind
        )
        run = await start(place, specification, words, limits=replace(limits, wall_s=wall_s))
        return run, find_deviations(load_policy(POLICY), specification, run.facts)

    return held


def in_place(kind: str, image: str = "", engine: str = "", user: str = "") -> list[hostile.Act]:
    """Run everything in one kind of place, as root or as an ordinary user."""
    items = controls.counted_acts()
    if os.environ.get(QUICKLY):
        items = [item for item in items if item["class"] != "resource"]
    if user:
        importlib.import_module("hermes_exec_backends.singularity.start")  # what is on disk may be out of its reach

        asyncio.run(hostile.run_all(starter(LOCAL), items[:1]))  # the same
        launcher_payload(Confinement(), ["/"], mounts=True, nested=())
        this_machine.cache_clear()
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    return asyncio.run(hostile.run_all(starter(SandboxTarget(kind, image, engine)), items))


def apart(*words: str) -> list[hostile.Act]:
    """The same in a process of its own."""
    again = [sys.executable, "-m", "tests.rigs.matrix", *words]
    done = subprocess.run(again, check=True, cwd=ROOT, stdout=subprocess.PIPE)
    return [hostile.Act(**each) for each in json.loads(done.stdout)]


def in_machine() -> list[hostile.Act]:
    """Run everything in the virtual machine: AppArmor beside all other mechanisms, control groups of version 2.

    It is slow, so each act that is done there is kept, and another start of it goes on with the rest.
    """
    share = RESULTS / "machine"
    shutil.rmtree(share / "lib", ignore_errors=True)
    for part in (hermes_exec, hermes_exec_backends):
        source = Path(str(part.__file__)).parent
        shutil.copytree(source, share / "lib" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(hostile.__file__, share / "lib")
    counted = controls.counted_acts()
    (share / "corpus").write_text("".join(json.dumps(item) + "\n" for item in counted), encoding="utf-8")
    made = build_confinement(load_policy(POLICY), there(), readonly={"/": hostile.SKILL}, cwd=hostile.SKILL)
    (share / "specification").write_bytes(pickle.dumps(made))
    (share / "profile").write_text(apparmor.render(load_policy(POLICY)), encoding="utf-8")
    (share / "driver.py").write_text(_DRIVER, encoding="utf-8")
    done = vm.run(["/usr/bin/python3", "-I", "/share/driver.py"], share, seconds=3000)
    if done.code:
        raise RuntimeError(done.err[-2000:])
    found = {act["id"]: hostile.Act(**act) for act in map(json.loads, (share / "found").read_text().splitlines())}
    return [found[item["id"]] for item in counted]


def table(columns: dict[str, list[hostile.Act]]) -> str:
    """The matrix, and below it what is not simply blocked, with the reason."""
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for kind in (*hostile.CLASSES, "all"):
        cells = [_cell([act for act in acts if kind in {act.kind, "all"}]) for acts in columns.values()]
        number = sum(kind in {act.kind, "all"} for act in next(iter(columns.values())))
        lines.append(f"| {kind} ({number}) | " + " | ".join(cells) + " |")
    reasons: dict[str, list[str]] = {}
    for name, acts in columns.items():
        for act in acts:
            if act.outcome not in {"blocked", "limit"}:
                reasons.setdefault(f"`{act.id}` {_WORDS.get(act.outcome, act.outcome)}: {act.detail}", []).append(name)
    return "\n".join([*lines, "", *(f"- {reason} ({'; '.join(names)})" for reason, names in reasons.items())])


def _cell(acts: list[hostile.Act]) -> str:
    count = Counter(act.outcome for act in acts)
    return ", ".join(f"{count[name]} {_WORDS.get(name, f'**{name}**')}" for name in sorted(count))


def layers(places: dict[str, SandboxTarget]) -> str:
    """Each layer switched off in turn, and how many attempts notice it in each kind of place."""
    lines = ["| without | " + " | ".join(places) + " |", "|---" * (len(places) + 1) + "|"]
    policy = override_policy(load_policy(POLICY), QUICK)
    for layer, (lose, rule) in LAYERS.items():
        cells: list[str] = []
        for place in places.values():
            if layer in ALWAYS.get(place.kind, ()):
                cells.append("cannot be left out")
                continue
            specification = lose(build_confinement(policy, this_machine(), place=place.kind)[0])
            proof = asyncio.run(proving.run_attempts(policy, specification, this_machine(), place))
            broken = [each for each in proof.judged if each.verdict is not Verdict.HELD]
            cells.append(f"noticed by {len(broken)}, `{rule}`" if rule in proof.broken_rules else "**unnoticed**")
        lines.append(f"| {layer} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Run everything everywhere, or in one kind of place."""
    if words:
        print(json.dumps([dataclasses.asdict(act) for act in in_place(*words)]))
        return
    if not os.environ.get(_APART):
        images.debian()
        vm.machine()
        again = 'ip link set lo up && exec "$0" -m tests.rigs.matrix'
        os.execvpe("unshare", ["unshare", "--net", "sh", "-c", again, sys.executable], {**os.environ, _APART: "1"})
    from tests.rigs import docker_engine

    engine = docker_engine.engine()
    image = engine.image(docker_engine.DEBIAN)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        tree = str(images.unpacked(images.debian(), Path(folder) / "debian"))
        runs: dict[str, Callable[[], list[hostile.Act]]] = {
            "bubblewrap, as root": lambda: apart("bubblewrap"),
            "bubblewrap, as a user": lambda: apart("bubblewrap", "", "", NOBODY),
            "Docker": lambda: apart("docker", image, engine.address),
            "Apptainer, as root": lambda: apart("singularity", tree),
            "Apptainer, as a user": lambda: apart("singularity", tree, "", NOBODY),
            MACHINE: in_machine,
        }
        places = {"bubblewrap": LOCAL, "Docker": SandboxTarget("docker", image, engine.address)}
        columns: dict[str, list[hostile.Act]] = {}
        without = ""
        for name, run in runs.items():
            found: list[dict[str, Any]] = remembered(name, _plainly(run))
            columns[name] = [hostile.Act(**act) for act in found]
            if name == _LAST:
                without = remembered(
                    "layers", lambda: layers({**places, "Apptainer": SandboxTarget("singularity", tree)})
                )
            if without:
                replace_block(BEGIN, END, f"{table(columns)}\n\n{without}")


def _plainly(run: Callable[[], list[hostile.Act]]) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [dataclasses.asdict(act) for act in run()]


def remembered(name: str, make: Callable[[], Any]) -> Any:
    """What a run of a part gave; a run that broke off goes on where it was. Remove the folder to begin anew."""
    file = RESULTS / f"{name}.json"
    if not file.exists():
        file.write_text(json.dumps(make()), encoding="utf-8")
    return json.loads(file.read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
