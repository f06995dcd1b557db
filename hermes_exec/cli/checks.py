"""The checks of ``doctor`` and ``backends``: this machine, each backend, other packages, and one opened target.

A package adds checks with an entry point of the group ``hermes_exec.doctors`` that names a `Doctor`.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Backend, Check
from hermes_exec.config.plugins import find_plugins, load_entry_point, load_value, own_values
from hermes_exec.config.registry import BUILT_INS, explain_missing_sdk, find_backend_class, list_types
from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec.extras import EXTRAS, install_command, missing_modules
from hermes_exec.pool.journal import Journal
from hermes_exec.pool.owner import Liveness
from hermes_exec.terminal.limits import Enforcement, Enforcer
from hermes_exec.terminal.requests import PYTHON_REMEDY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_exec.config.profile import Profile

GROUP = "hermes_exec.doctors"
OURSELVES = "hermes-exec"
"""The subject of the checks of this program itself."""
_LIMIT_S = 15.0
"""For the checks of one backend."""
_LIMITED = "run as an ordinary user, mount writable control groups, or limit the whole target"
_POLLED = "sysctl fs.inotify.max_user_instances=1024 there"
_ABOVE = "follow the lines above; else try again later"
_WORST = ("ok", "warning", "missing")


@dataclass(frozen=True, slots=True)
class Doctor:
    """The checks that a package adds to ``hermes-exec doctor``, under the name of their entry point."""

    examine: Callable[[], Awaitable[list[Check]]]
    """Runs the checks. Costs nothing, creates nothing, and bounds its own time."""
    extras: tuple[str, ...] = ()
    """The extras of this project that ``examine`` reports itself."""
    examine_with_model: Callable[[], Awaitable[list[Check]]] | None = None
    """Runs in place of ``examine`` with ``--model``: also asks a model one question, which may cost money."""


@dataclass(frozen=True, slots=True)
class Report:
    """The checks of one subject: a backend, a target, a package, or this program."""

    type: str
    """The name of the subject."""
    checks: list[Check]
    features: frozenset[str] = frozenset()

    @property
    def status(self) -> str:
        """The worst status of a check."""
        return max((check.status for check in self.checks), key=_WORST.index, default="ok")

    @property
    def usable(self) -> bool:
        """Whether nothing required is missing."""
        return self.status != "missing"

    @property
    def reason(self) -> str:
        """The details of the checks with the worst status."""
        worst = [check for check in self.checks if check.status == self.status != "ok"]
        return "; ".join(check.detail for check in worst)

    @property
    def remedy(self) -> str:
        """The remedies of the checks with the worst status."""
        return "; ".join(check.remedy for check in self.checks if check.status == self.status != "ok" and check.remedy)


# Backends


async def check_backends() -> list[Report]:
    """Check every backend, all at once."""
    return list(await asyncio.gather(*(check_backend(name) for name in list_types())))


async def check_backend(name: str, profile: Profile | None = None) -> Report:
    """Check a backend on this machine, with the values of a profile or with the defaults."""
    try:
        backend = await asyncio.to_thread(find_backend_class, name)  # importing an SDK takes seconds
        async with asyncio.timeout(_LIMIT_S):
            return Report(name, await backend.doctor(profile), backend.features)
    except TimeoutError:
        return Report(name, [Check(name, "missing", f"no answer within {_LIMIT_S:g} s")])
    except (HermesError, ImportError) as error:
        why = explain_missing_sdk(name, error) if isinstance(error, ImportError) else error
        if not isinstance(why, HermesError):
            raise
        return Report(name, [Check(name, "missing", why.what.removeprefix(f"{name}: "), why.remedy)])
    except OSError as error:  # such as a home folder that this user may not search
        return Report(name, [Check(name, "missing", f"{error.filename}: {error.strerror}")])


# This program and other packages


def load_doctors() -> dict[str, Doctor | HermesError]:
    """Return the registered doctors by name, or the reason why one cannot be loaded."""
    own = own_values(GROUP)
    found = {name: _load_doctor(partial(load_value, value), value) for name, value in own.items()}
    try:
        plugins = find_plugins(GROUP, is_reserved=lambda name: name in {*own, OURSELVES, *list_types()})
    except HermesError as error:
        return found | {"plugins": error}
    return found | {
        name: _load_doctor(partial(load_entry_point, point), point.value) for name, point in plugins.items()
    }


def _load_doctor(load_object: Callable[[], object], value: str) -> Doctor | HermesError:
    try:
        loaded = load_object()
    except HermesError as error:
        return error
    except (ImportError, AttributeError) as error:
        return PlaceUnavailable(f"{value} cannot be loaded: {error}")
    return loaded if isinstance(loaded, Doctor) else PlaceUnavailable(f"{value} is not a Doctor")


async def run_doctor(name: str, doctor: Doctor | HermesError, *, model: bool) -> Report:
    """Run the checks of one package."""
    if isinstance(doctor, HermesError):
        return Report(name, [Check(name, "missing", doctor.what, doctor.remedy)])
    return Report(name, await ((model and doctor.examine_with_model) or doctor.examine)())


def check_ourselves(reported: set[str]) -> Report:
    """Check this program: its Python, its files, its records, its extras but those that are ``reported`` elsewhere."""
    from hermes_exec.cli.open_target import read_settings
    from hermes_exec.config.load import check
    from hermes_exec.config.paths import exists, state_folder

    checks = [Check("python", "ok", f"{platform.python_version()} at {sys.executable}")]
    try:
        settings = read_settings()
        problems = check(settings)
        files = ", ".join(str(path) for path in settings.files) or "no file, which is fine"
    except HermesError as error:
        problems, files = str(error).splitlines(), ""
    checks += [Check("configuration", "missing", problem, "hermes-exec profile check") for problem in problems]
    if not problems:
        checks.append(Check("configuration", "ok", files))
    folder = state_folder(os.environ)
    nearest = next(path for path in (folder, *folder.parents) if exists(path))
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        checks.append(Check("records", "ok", f"the audit and the jobs are kept in {folder}"))
    else:
        checks.append(Check("records", "warning", f"{nearest} cannot be written to", "export XDG_STATE_HOME=…"))
    return Report(OURSELVES, [*checks, _check_orchestrators(), *_check_extras(reported)])


def _check_orchestrators() -> Check:
    """Count the recorded terminals, by whether their orchestrators are alive."""
    journal = Journal()
    counts = Counter[Liveness]()
    try:
        for folder, life in journal.find_others().items():
            counts[life] += len(journal.entries(folder))
    except OSError as error:
        return Check("orchestrators", "warning", f"{error.filename}: {error.strerror}", "export XDG_STATE_HOME=…")
    detail = f"{counts[Liveness.LIVING]} terminals open"
    if counts[Liveness.ELSEWHERE]:
        detail += f", {counts[Liveness.ELSEWHERE]} of other machines or containers, to be checked there"
    if counts[Liveness.DEAD]:
        detail += f", {counts[Liveness.DEAD]} left by orchestrators that died"
        return Check("orchestrators", "warning", detail, "hermes-exec doctor --reap")
    return Check("orchestrators", "ok", detail)


def _check_extras(reported: set[str]) -> list[Check]:
    """A row for each extra that is not installed; backends and other packages report their own."""
    elsewhere = reported | {row.extra for name, row in BUILT_INS.items() if name != "singularity"}
    return [
        Check(f"extra {extra}", "warning", f"not installed: {', '.join(lacking)}", install_command(extra))
        for extra in EXTRAS
        if extra not in elsewhere and (lacking := missing_modules(extra))
    ]


# One target


async def check_target(text: str) -> list[Report]:
    """Check the requirements of a target on this machine, then open it and check it from within."""
    from hermes_exec.cli.open_target import open_planned, plan_target, read_settings
    from hermes_exec.config.load import resolve

    target = resolve(text, read_settings())
    local = [await check_backend(profile.type, profile) for profile in target.chain[-1:]]  # the others run elsewhere
    began = time.perf_counter()
    plan = plan_target(text)
    chain = list_chain(plan.backend)
    try:
        async with open_planned(plan) as terminal:
            took_ms = (time.perf_counter() - began) * 1e3
            checks = [Check("open", "ok", f"within {took_ms:.0f} ms, {terminal.capabilities.carrier} transport")]
            checks += await _check_terminal(terminal)
    except HermesError as error:
        return [*local, *trace_failure(text, chain, error)]
    reached = [Report(each, [Check("open", "ok", "it opens")]) for each in reversed(chain[1:])]
    return [*local, *reached, Report(text, checks)]


def list_chain(backend: Backend) -> list[str]:
    """Return the target of a backend, then of each backend that it is nested in."""
    found = [backend.target]
    while isinstance(outer := getattr(backend, "outer", None), Backend):
        backend = outer
        if backend.target != found[-1]:
            found.append(backend.target)
    return found


def trace_failure(text: str, chain: list[str], error: HermesError) -> list[Report]:
    """Report how far opening ``text`` got before ``error``: the targets of ``chain``, outermost first."""
    broken = chain.index(error.place) if error.place in chain else 0
    checks = [Check("open", "warning", "not tried") for _ in chain[:broken]]
    remedy = _ABOVE if error.remedy.startswith("hermes-exec doctor") else error.remedy
    checks += [Check("open", "missing", error.what, remedy)]
    checks += [Check("open", "ok", "it opens") for _ in chain[broken + 1 :]]
    return [Report(place, [check]) for place, check in zip(reversed([text, *chain[1:]]), reversed(checks), strict=True)]


async def _check_terminal(terminal: Any) -> list[Check]:
    capabilities = asdict(terminal.capabilities)
    lacks = [name for name, holds in capabilities.items() if holds is False]
    result = await terminal.run(["true"])
    checks = [Check("command", "ok", f"true took {result.duration_s * 1e3:.1f} ms there")]
    if capabilities["sessions"]:
        async with terminal.session() as session:
            note = (await session.run("true")).note
        checks.append(Check("session", "warning", note, _POLLED) if note else Check("session", "ok", "it answers"))
    if lacks:
        text = f"without {', '.join(lacks).replace('_', ' ')}"
        remedy = PYTHON_REMEDY if capabilities["carrier"] == "shell" else ""
        checks.append(Check("capabilities", "warning", text, remedy))
    else:
        checks.append(Check("capabilities", "ok", "everything"))
    if has := capabilities["features"]:
        checks.append(Check("features", "ok", ", ".join(sorted(has))))
    if capabilities["limits"]:
        checks.append(check_limits(await terminal.limits()))
    return checks


def check_limits(enforcement: Enforcement) -> Check:
    """List the mechanism that enforces each limit; a warning where none does."""
    by: dict[str, list[str]] = {}
    for name, enforcer in asdict(enforcement).items():
        by.setdefault(enforcer, []).append(name)
    missing = by.pop(Enforcer.NONE, [])
    found = [f"{', '.join(names)} by {enforcer}" for enforcer, names in by.items()]
    if not missing:
        return Check("limits", "ok", "; ".join(found))
    detail = "; ".join([*found, f"nothing enforces {', '.join(missing)}: a command with this limit is refused"])
    return Check("limits", "warning", detail, _LIMITED)
