"""The job of the demo in one target: a new folder, a virtual environment, an installation, tests, a report."""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from hermes_exec.cli.console import note
from hermes_exec.cli.demo.source import REPORT
from hermes_exec.cli.open_target import open_planned, plan_target
from hermes_exec.errors import HermesError, PlaceError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec.cli.demo.display import Display
    from hermes_exec.cli.demo.source import Project
    from hermes_exec.terminal.terminal import Terminal

_TIMED = 20
_LARGEST_REPORT = 16 << 20
_COUNTED = ("tests", "failures", "errors", "skipped")


@dataclass(slots=True)
class Outcome:
    """The times and results of the job in one target."""

    target: str
    open_s: float | None = None
    """Seconds until the first command had run."""
    session_s: float | None = None
    """Median seconds of a command in a session."""
    program_s: float | None = None
    """Median seconds of a program without a shell."""
    job_s: float | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Numbers of tests, failures, errors and skipped tests, from the report."""
    trouble: str = ""
    """Why the job failed; empty when the test suite ran."""

    @property
    def opened(self) -> bool:
        """Whether a command ran in the target."""
        return self.open_s is not None

    @property
    def passed(self) -> bool:
        """Whether the test suite ran, had tests, and none of them failed."""
        bad = self.counts.get("failures", 0) + self.counts.get("errors", 0)
        return not self.trouble and self.counts.get("tests", 0) > 0 and not bad

    @property
    def result(self) -> str:
        """The result as text, for the table."""
        if self.trouble:
            return f"failed: {self.trouble}"
        tests, failures, errors, skipped = (self.counts.get(key, 0) for key in _COUNTED)
        parts = [f"{tests - failures - errors - skipped} passed"]
        parts += [f"{count} {word}" for count, word in ((failures + errors, "failed"), (skipped, "skipped")) if count]
        return ", ".join(parts)


async def do_job(target: str, project: Project, reports: Path, display: Display) -> Outcome:
    """Run the whole job and clean up after it; a failure is part of the outcome and raises nothing."""
    outcome = Outcome(target)
    try:
        display.step(target, "opening")
        plan = plan_target(target)
        began = time.perf_counter()
        async with open_planned(plan) as terminal:
            await terminal.run(["true"], check=True)
            outcome.open_s = time.perf_counter() - began
            outcome.session_s = await _measure_median(terminal, "true")
            outcome.program_s = await _measure_median(terminal, ["true"])
            began = time.perf_counter()
            python = sys.executable if plan.backend.traits.same_python else "python3"
            async with _create_folder(terminal, display) as folder:
                report = reports / f"{''.join(c if c.isalnum() else '-' for c in target)}.xml"
                outcome.counts = await _install_and_test(terminal, folder, python, project, report, display)
            outcome.job_s = time.perf_counter() - began
    except HermesError as error:
        outcome.trouble = str(error)
    return outcome


async def _measure_median(terminal: Terminal, command: str | list[str]) -> float:
    times: list[float] = []
    for _ in range(_TIMED):
        began = time.perf_counter()
        await terminal.run(command)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


@asynccontextmanager
async def _create_folder(terminal: Terminal, display: Display) -> AsyncGenerator[str]:
    """Create a folder in the target, and remove it at the end."""
    result = await terminal.run(["mktemp", "-d", "-t", "hermes-demo.XXXXXX"], check=True)
    folder = os.fsdecode(result.stdout.rstrip(b"\n"))
    try:
        yield folder
    finally:
        display.step(terminal.target, "cleaning up")
        try:
            await terminal.files.remove(folder, recursive=True)
        except HermesError as error:
            note(f"{folder} may still be there: {error}")


async def _install_and_test(
    terminal: Terminal, folder: str, python: str, project: Project, report: Path, display: Display
) -> dict[str, int]:
    target = terminal.target
    display.step(target, f"uploading {project.title}")
    archive = f"{folder}/{project.archive.name}"
    await terminal.upload(project.archive, archive, progress=display.bytes)
    if project.wheels is not None:
        await terminal.upload(project.wheels, f"{folder}/wheels", progress=display.bytes)
    display.step(target, "creating a virtual environment")
    await _do(terminal, [python, "-m", "venv", f"{folder}/venv"], display)
    inner = f"{folder}/venv/bin/python"
    display.step(target, f"installing {project.title}")
    install = [inner, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    if project.wheels is None or await _suits_wheels(terminal, inner):
        install += ["--no-index", f"--find-links={folder}/wheels"]
    await _do(terminal, [*install, archive, *project.needs], display)
    await _do(terminal, [inner, "-m", "tarfile", "-e", archive, f"{folder}/source"], display)
    top = f"{folder}/source/{project.archive.name.removesuffix('.tar.gz')}"
    # Apart from the sources, so that the tests import the installed package.
    await terminal.files.mkdir(f"{folder}/tests")
    await _do(terminal, ["cp", *(f"{top}/{path}" for path in project.tests), f"{folder}/tests"], display)
    display.step(target, "running its tests")
    reason = await _run_streamed(terminal, [inner, *project.command], f"{folder}/tests", display)
    if not await terminal.files.exists(f"{folder}/tests/{REPORT}"):
        raise PlaceError(f"the test suite wrote no report ({reason})", state="the folder is removed again")
    display.step(target, "downloading the report")
    await terminal.download(f"{folder}/tests/{REPORT}", report)
    return _read_counts(report)


async def _suits_wheels(terminal: Terminal, python: str) -> bool:
    """Whether the uploaded wheels suffice for this Python: older ones need more of them."""
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    return (await terminal.run([python, "-c", code])).ok


async def _do(terminal: Terminal, command: list[str], display: Display) -> None:
    """Run a step of the job that must succeed."""
    # The settings of the target must not change the demo, nor deprecations of its Python the output.
    env = {"PIP_CONFIG_FILE": os.devnull, "PYTHONWARNINGS": "ignore"}
    async with terminal.stream(command, env=env, merge_stderr=True, timeout=600) as stream:
        tail = b""
        async for event in stream:
            tail = (tail + event.data)[-2000:]
            display.output(event.data)
        result = await stream.result()
    if not result.ok:
        last = tail.decode("utf-8", "replace").strip().splitlines()[-1:] or [result.note]
        name = " ".join(command[1:3]) if command[1] == "-m" else Path(command[0]).name
        raise PlaceError(f"{name}: {result.reason}: {last[0]}", state="the folder is removed again")


async def _run_streamed(terminal: Terminal, command: list[str], cwd: str, display: Display) -> str:
    async with terminal.stream(command, cwd=cwd, merge_stderr=True, timeout=600) as stream:
        async for event in stream:
            display.output(event.data)
        return (await stream.result()).reason


def _read_counts(report: Path) -> dict[str, int]:
    """Read the counts of a JUnit report, which comes from the target and is not trusted."""
    if report.stat().st_size > _LARGEST_REPORT:
        raise PlaceError(f"the report is larger than {_LARGEST_REPORT} bytes", state="it was not read")
    try:
        root = ET.parse(report).getroot()  # noqa: S314  bounded above; expat bounds what entities may expand to
        suites: list[Any] = [root] if root.tag == "testsuite" else root.findall("testsuite")
        return {key: sum(int(suite.get(key, "0")) for suite in suites) for key in _COUNTED}
    except (ET.ParseError, ValueError) as error:
        raise PlaceError(f"the report is not valid: {error}", state="it was not used") from error
