"""Batches: what a trial costs, many at once, runs of no-op trials, engines, a killed shard, and other systems.

Each run is a command of a person, in a folder that is deleted at the end. CPU times are of the shards, which write them
down themselves; the processes in the targets are not in them. The floor opens the same targets and runs the same
commands in one plain program.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import idle_engine
from benchmarks.figures import Figure, Table, median
from benchmarks.fleet_peers import measure_peers
from hermes_exec_agent.batch.run_folder import RunFolder
from hermes_exec_agent.batch.run_state import RunState
from hermes_exec_agent.models import say
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply
from tests.rigs import slurm
from tests.rigs.endpoint import ScriptedEndpoint

PROGRAM = Path(sys.executable).with_name("hermes-exec")
CALLS = 10
"""Calls of a trial."""
TRIAL_MS, STEP_MS, REQUEST_MS, TRIAL_KIB = 60.0, 4.0, 12.0, 150.0
STATUS_S, DECIDE_S, GROWTH_MIB, NOTICE_S = 1.0, 5.0, 64.0, 15.0
"""What a quiet machine should keep to."""
_OF_SHARD = 64
_HOLD_S = 60.0
"""Seconds in which one more trial begins."""
_FLOOR = """
import asyncio, resource, sys
import hermes_exec

async def trial(slots):
    async with slots, hermes_exec.open("local", audit=False) as terminal:
        for _ in range(int(sys.argv[2])):
            await terminal.run("true")

async def main():
    slots = asyncio.Semaphore(8)
    await asyncio.gather(*(trial(slots) for _ in range(int(sys.argv[1]))))

asyncio.run(main())
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    folder: RunFolder
    code: int
    seconds: float
    coordinator_kib: int
    """Its largest resident memory."""

    def read_shards(self) -> list[dict[str, Any]]:
        """Return the last events of the shards' logs, with ``cpu_s`` and ``rss_kib``."""
        logs = (self.folder.path / "shards").glob("s*/log.jsonl")
        return [json.loads(log.read_text().splitlines()[-1]) for log in logs]

    def read_results(self) -> list[dict[str, Any]]:
        """Return the accepted results."""
        state = RunState(self.folder)
        state.update()
        state.reconcile()
        return [each.accepted for _, each in state.results() if each.accepted is not None]

    @property
    def cpu_s(self) -> float:
        """The CPU time of all shards."""
        return sum(float(each["cpu_s"]) for each in self.read_shards())


class Bench:
    """A home folder for the runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {
            "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": idle_engine.install(home / "engine"),
        }
        self._runs = 0

    def start(self, trials: int, *argv: str, command: str = "true", calls: int = CALLS) -> subprocess.Popen[bytes]:
        """Start a run of scripted trials, each of so many calls."""
        tasks = ({"id": f"t{number}", "instruction": f"work {calls}", "check": "true"} for number in range(trials))
        (self.home / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
        commands = [f"{command}; : {number}" for number in range(calls)]  # a model that repeats itself is stopped
        replies: list[dict[str, Any]] = [
            {"tool_calls": [{"name": "terminal", "arguments": {"command": each}}]} for each in commands
        ]
        replies.append({"content": "Done."})
        (self.home / "replies.jsonl").write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
        self._runs += 1
        model = () if {"nop", "--model"} & {*argv} else ("--model", "replay:replies.jsonl")
        words = [PROGRAM, "batch", "run", "tasks.jsonl", *model, "--into", f"r{self._runs}", *argv]
        with (self.home / "output").open("ab") as output:
            return subprocess.Popen(words, cwd=self.home, env=self.environ, stdout=output, stderr=output)

    def use_endpoint(self, url: str) -> None:
        """Let the model ``main`` be at this address."""
        self.environ |= {"LLM_PROVIDER": "custom", "LLM_BASE_URL": url, "DEFAULT_MODEL": "m"}

    def hold(self, trials: int) -> float:
        """Return a shard's memory in KiB while so many trials wait for their model, after a command each."""
        asked, gate = threading.Semaphore(0), threading.Event()

        def answer(body: dict[str, Any]) -> Reply:
            if body["messages"][-1]["role"] == "user":
                return _call("true", 0)
            asked.release()
            gate.wait()
            return say("Done.")

        with ScriptedEndpoint([answer], forever=True) as endpoint:
            self.use_endpoint(endpoint.url)
            process = self.start(trials, "-n", str(trials), "--per-shard", str(trials), "--model", "main")
            try:
                for _ in range(trials):
                    if not asked.acquire(timeout=_HOLD_S):
                        raise RuntimeError((self.home / "output").read_text()[-2000:])
                (owner,) = self.path.glob("shards/s*/owner.json")
                lines = Path(f"/proc/{json.loads(owner.read_text())['pid']}/smaps_rollup").read_text().splitlines()
                return next(float(line.split()[1]) for line in lines if line.startswith("Rss:"))
            finally:
                gate.set()
                process.wait()

    @property
    def path(self) -> Path:
        """The folder of the latest run."""
        return self.home / f"r{self._runs}"

    def run(self, trials: int, *argv: str, command: str = "true", calls: int = CALLS) -> Done:
        """Run trials to their end; all have to be graded."""
        began = time.perf_counter()
        process = self.start(trials, *argv, command=command, calls=calls)
        peak_kib = 0  # ru_maxrss would have that of this process, from before the program was started
        while process.poll() is None:
            peak_kib = _read_peak(process.pid) or peak_kib
            time.sleep(0.1)  # the peak is read while it runs, as it is gone at its end
        if process.returncode:
            raise RuntimeError((self.home / "output").read_text()[-2000:])
        folder = RunFolder.open(self.path)
        return Done(folder, process.returncode, time.perf_counter() - began, peak_kib)

    def time_command(self, *argv: str) -> float:
        """Return the seconds of a command about the latest run."""
        began = time.perf_counter()
        subprocess.run(
            [PROGRAM, "batch", *argv, self.path], cwd=self.home, env=self.environ, capture_output=True, check=True
        )
        return time.perf_counter() - began


def _read_peak(pid: int) -> int:
    """Return the largest resident memory of a process so far in KiB; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def figures(part: int) -> list[Figure | Table]:
    """Measure all; ``part`` divides the numbers of trials."""
    with tempfile.TemporaryDirectory(prefix="hx-fleet-") as home:
        bench = Bench(Path(home))
        trial, step = measure_trial(bench, max(_OF_SHARD // part, 8))
        memory, rss_kib = measure_memory(bench, max(500 // part, 100))
        rest = [
            *measure_many(bench, max(200 // part, 20)),
            *measure_idle(bench, 10_000 // part),
            *measure_notice(bench),
        ]
        engines, skipped = measure_engines(bench)
        peers, absent = measure_peers(Path(home) / "peers", max(8 // part, 2))
        shell_kib = _measure_shell()
    model = model_sizes(trial[0].ours, step[0].ours, memory[-1].ours, rss_kib, shell_kib)
    remarks = tuple(f"Not measured: {each}." for each in [*skipped, *absent])
    return [*trial, *step, *memory, *rest, *engines, *peers, replace(model, remarks=(*model.remarks, *remarks))]


def measure_trial(bench: Bench, trials: int) -> tuple[list[Figure], list[Figure]]:
    """Measure the CPU time of trials, and of a step more without and with requests, next to one plain program."""
    argv = ("-n", "8")
    short: list[float] = []
    floor: list[float] = []
    steps: list[float] = []
    requests: list[float] = []
    for _ in range(3):
        floor.append(_run_floor(trials // 2, CALLS) / (trials // 2))
        short.append(bench.run(trials, *argv).cpu_s / trials)
        steps.append((bench.run(trials, *argv, calls=3 * CALLS).cpu_s / trials - short[-1]) / (2 * CALLS))
    with ScriptedEndpoint([_answer], forever=True) as endpoint:
        bench.use_endpoint(endpoint.url)
        for _ in range(3):
            few, many = (
                bench.run(trials // 2, *argv, "--model", "main", calls=calls).cpu_s for calls in (2, 2 + CALLS)
            )
            requests.append((many - few) / (trials // 2) / CALLS)
    name, ms = f"a trial of {CALLS} calls: CPU of ours", 1e3
    trial_ms = median(short) * ms
    return [
        Figure(name, "ms", trial_ms, "the same commands without an agent", median(floor) * ms),
        Figure(name, "ms", trial_ms, "the limit", TRIAL_MS, 1.0),
    ], [
        Figure("a step more, scripted: CPU of ours", "ms", median(steps) * ms, "the limit", STEP_MS, 1.0),
        Figure("a step more, whole replies over HTTP: CPU of ours", "ms", median(requests) * ms, "the limit",
               REQUEST_MS, 1.0),
    ]  # fmt: skip


def _answer(body: dict[str, Any]) -> Reply:
    """Call the terminal as often as the request says."""
    calls = sum(each["role"] == "tool" for each in body["messages"])
    most = next(int(each["content"].split()[-1]) for each in body["messages"] if each["role"] == "user")
    if calls == most:
        return say("Done.")
    return _call(f"true; : {calls}", calls)


def _call(command: str, number: int) -> Reply:
    call = ToolCall(f"call_{number}", "terminal", json.dumps({"command": command}))
    return Reply(Message("assistant", "", (call,)), "tool_calls")


def _run_floor(trials: int, calls: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _FLOOR, str(trials), str(calls)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure_memory(bench: Bench, most: int) -> tuple[list[Figure], float]:
    """Measure what running trials add to their shard; also return the memory of a shard without trials."""
    few, some, many = (bench.hold(count) for count in (5, 50, most))
    first, last = (some - few) / 45, (many - some) / (most - 50)
    return [
        Figure("memory of ours of a running trial, of the first 50", "KiB", first, "the limit", TRIAL_KIB, 1.0),
        Figure(f"memory of ours of a running trial, of the next {most - 50}", "KiB", last, "the limit", TRIAL_KIB, 1.0),
    ], few - 5 * first


def measure_many(bench: Bench, count: int) -> list[Figure]:
    """Measure so many trials at once."""
    before = set(Path("/tmp").glob("hermes-trial.*"))
    done = bench.run(count, "-n", str(count))
    graded = sum(each["state"] == "graded" for each in done.read_results())
    left = set(Path("/tmp").glob("hermes-trial.*")) - before
    return [
        Figure(f"{count} trials of {CALLS} calls at once", "s", done.seconds, "", 0),
        Figure(f"{count} trials at once: graded", "", graded, "all", count, 1.0, "higher"),
        Figure(f"{count} trials at once: folders left", "", len(left), "", 0),
    ]


def measure_idle(bench: Bench, count: int) -> list[Figure]:
    """Measure no-op trials in targets, then many by shards that open none, and the commands about these."""
    targets = count // 50
    opened = bench.run(targets, "--agent", "nop", "-n", "16")
    argv = ("--agent", "nop", "--engine", idle_engine.NAME)
    small = bench.run(10, *argv)
    done = bench.run(count, *argv, "-n", "128")
    grown = (done.coordinator_kib - small.coordinator_kib) / 1024
    name = f"{count:,} no-op trials without targets"
    return [
        Figure(f"{targets} no-op trials in local targets", "per s", targets / opened.seconds, "", 0),
        Figure(name, "per s", count / done.seconds, "", 0),
        Figure(f"{name}: growth of the coordinator", "MiB", grown, "the limit", GROWTH_MIB, 1.0),
        Figure(f"{name}: status", "s", bench.time_command("status"), "the limit", STATUS_S, 1.0),
        Figure(f"{name}: resume with nothing left", "s", bench.time_command("resume"), "the limit", DECIDE_S, 1.0),
    ]


def measure_notice(bench: Bench) -> list[Figure]:
    """Measure the seconds from the kill of a shard to the record that its trial is lost."""
    process = bench.start(1, "--attempts", "2", command="sleep 3", calls=1)
    owner = _await_file(bench.path, "shards/s*/owner.json")
    _await_file(bench.path, "claims/*/*.1")
    os.kill(int(json.loads(owner.read_text())["pid"]), signal.SIGKILL)
    began = time.perf_counter()
    _await_file(bench.path, "results/*/*.1")
    took = time.perf_counter() - began
    process.wait()
    return [Figure("a killed shard is noticed after", "s", took, "the limit", NOTICE_S, 1.0)]


def _await_file(folder: Path, pattern: str) -> Path:
    while not (found := list(folder.glob(pattern))):
        time.sleep(0.02)  # a benchmark needs no more than to see it soon
    return found[0]


def measure_engines(bench: Bench) -> tuple[list[Figure], list[str]]:
    """Measure what Ray and Slurm add to trials of ten seconds, once they run; also return what is missing."""
    figures: list[Figure] = []
    missing: list[str] = []

    def measure(engine: str) -> float:
        done = bench.run(4, "-n", "4", "--per-shard", "2", "--engine", engine, command="sleep 10", calls=1)
        return median([float(each["seconds"]) for each in done.read_results()])

    local = measure("local")
    if find_spec("ray") is None:
        missing.append("Ray, as it is not installed")
    else:
        figures.append(Figure("a trial of 10 s by --engine ray", "s", measure("ray"), "by local", local, 1.05))
    try:
        with slurm.cluster(2) as cluster:
            bench.environ["SLURM_CONF"] = str(cluster.conf)
            figures.append(Figure("a trial of 10 s by --engine slurm", "s", measure("slurm"), "by local", local, 1.05))
    except pytest.skip.Exception as reason:
        missing.append(f"Slurm: {reason}")
    return figures, missing


def _measure_shell() -> float:
    """Return the KiB of the processes of one open local target."""
    script = (
        "import hermes_exec.sync as hx\n"
        "with hx.open('local', audit=False) as terminal:\n"
        "    print(terminal.run('cat /proc/$PPID/smaps_rollup').stdout_text)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = (line for line in done.stdout.splitlines() if line.startswith("Pss:"))
    return float(next(lines, "Pss: 8000 kB").split()[1])


def model_sizes(trial_ms: float, step_ms: float, trial_kib: float, shard_kib: float, shell_kib: float) -> Table:
    """Return what runs of three sizes need, computed from the figures above."""
    rows: list[tuple[str, ...]] = []
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    per_shard = min(_OF_SHARD, descriptors // 6)
    for count in (1_000, 10_000, 100_000):
        cores = count * step_ms / 1e3 / 10 / 0.7
        shards = math.ceil(count / per_shard)
        ours = (count * trial_kib + shards * shard_kib) * 1024 / 1e9
        targets = count * shell_kib * 1024 / 1e9
        end = _find_end(ours + targets, ours, memory_gb)
        rows.append((f"{count:,}", f"{cores:.1f}", f"{shards:,}", f"{ours:.1f}", f"{targets:.0f}", end))
    remark = (
        "Computed from the rows above for a step each ten seconds in each trial, 70 % of a core used, and "
        f"{per_shard} trials in a shard. A trial's start and end take {trial_ms:.0f} ms of CPU once."
    )
    return Table(
        "Trials at once, modelled",
        ("trials", "cores for ours", "shards", "GB of ours", "GB of local targets", "what ends first"),
        tuple(rows),
        (remark,),
    )


def _find_end(all_gb: float, ours_gb: float, memory_gb: float) -> str:
    """Return what a machine like this one runs out of first."""
    if all_gb < memory_gb:
        return "nothing: one machine of this size holds it"
    if ours_gb < memory_gb:
        return "the memory of local targets: other targets, or more nodes by an engine"
    return "the memory of one machine: shards on more nodes by an engine"
