"""``backends`` and ``doctor``: what can be used on this machine, what cannot, why, and what mends it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.backend import Backend, Check, Leftover, reap_expired
from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note
from hermes_exec.cli.options import Json, Place  # noqa: TC001  typer reads annotations at run time
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.config.registry import BUILT_INS, backend_class, known_types, sdk_missing
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.extras import EXTRAS, install_command, missing_modules
from hermes_exec.guest.core import orphan_cleanup
from hermes_exec.pool.journal import Journal
from hermes_exec.pool.orchestrator import Orchestrator
from hermes_exec.pool.owner import Life
from hermes_exec.pool.recovery import Fate
from hermes_exec.terminal.limits import Enforcement, Enforcer

if TYPE_CHECKING:
    from collections.abc import Container

    from hermes_exec.config.profile import Profile


@dataclass(frozen=True, slots=True)
class Swept:
    """What was done about one guest, or (``folder`` is empty) about programs whose guest is not known."""

    folder: str
    ended: tuple[int, ...]
    """The processes that were killed."""
    left: str
    """What could not be removed, and why; empty when everything is gone."""


def reap(only: Container[str] | None = None) -> list[Swept]:
    """Kill and remove all that gone guests of this user left on this machine.

    ``only`` names the guests (16 hexadecimal digits) that are looked at, and leaves orphaned runners alone.
    """
    gone = {
        name: paths
        for name, paths in orphan_cleanup.folders().items()
        if (only is None or name in only) and orphan_cleanup.is_gone(paths)
    }
    swept = [Swept(folder, tuple(ended), left) for folder, ended, left in orphan_cleanup.sweep(gone)]
    if only is None:
        ended, left = orphan_cleanup.sweep_runners()
        if ended or left:
            swept.append(Swept("", tuple(ended), left))
    return swept


def _check_orchestrators() -> Check:
    """How many terminals are recorded, and whether those that recorded them live."""
    journal = Journal()
    counts = Counter[Life]()
    try:
        for folder, life in journal.others().items():
            counts[life] += len(journal.entries(folder))
    except OSError as error:
        return Check("orchestrators", "warning", f"{error.filename}: {error.strerror}", "export XDG_STATE_HOME=…")
    detail = f"{counts[Life.LIVING]} terminals open"
    if counts[Life.ELSEWHERE]:
        detail += f", {counts[Life.ELSEWHERE]} of other machines or containers, to be judged there"
    if counts[Life.DEAD]:
        detail += f", {counts[Life.DEAD]} left by orchestrators that died"
        return Check("orchestrators", "warning", detail, "hermes-exec doctor --reap")
    return Check("orchestrators", "ok", detail)


async def settle() -> bool:
    """End what dead orchestrators left, but jobs, and tell; False when some of it is out of reach."""
    if Life.DEAD not in Journal().others().values():
        return True
    async with Orchestrator(recover="reap") as orchestrator:
        found = orchestrator.recovered
    for each in found:
        jobs = f", {len(each.jobs)} jobs go on" if each.jobs else ""
        why = f" ({each.note})" if each.note else ""
        note(f"{each.target}: a terminal of a dead orchestrator: {each.fate}{jobs}{why}")
    return not any(each.fate is Fate.UNREACHABLE for each in found)


_PATIENCE_S = 15.0
_LIMITED = "run as an ordinary user, mount control groups that can be written, or limit the whole place"
_POLLED = "sysctl fs.inotify.max_user_instances=1024 there"
_ABOVE = "what the lines above say; else try again later"
_WORST = ("ok", "warning", "missing")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of place, and what its doctor says."""

    type: str
    checks: list[Check]
    features: frozenset[str] = frozenset()

    @property
    def status(self) -> str:
        """Of its worst check."""
        return max((check.status for check in self.checks), key=_WORST.index, default="ok")

    @property
    def usable(self) -> bool:
        """Whether nothing is missing."""
        return self.status != "missing"

    @property
    def reason(self) -> str:
        """Its worst check, in words."""
        worst = [check for check in self.checks if check.status == self.status != "ok"]
        return "; ".join(check.detail for check in worst)

    @property
    def remedy(self) -> str:
        """What mends that."""
        return "; ".join(check.remedy for check in self.checks if check.status == self.status != "ok" and check.remedy)


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add one of the commands to the application."""
    if name == "backends":
        app.command(name, short_help=summary)(backends)
    else:
        app.command(name, short_help=summary)(doctor)


def backends(
    *,
    cost: Annotated[
        bool, typer.Option("--cost", help="List what of ours is alive where it is paid for, and since when.")
    ] = False,
    json: Json = False,
) -> int:
    """List the kinds of place: which of them can be used on this machine, and why not the others."""
    if cost:
        from hermes_exec.cli.cost import cost as ask

        return interruptible.run(ask(json=json))
    kinds = asyncio.run(every_kind())
    if json:
        show_json([{**_facts(kind), "features": sorted(kind.features)} for kind in kinds])
        return 0
    rows = [
        [kind.type, "yes" if kind.usable else "no", ", ".join(sorted(kind.features)), kind.reason, kind.remedy]
        for kind in kinds
    ]
    show_table(("TYPE", "USABLE", "CAN", "WHY", "TRY"), rows)
    return 0


def doctor(
    target: Place = None,
    *,
    reap: Annotated[
        bool,
        typer.Option(
            "--reap",
            help="End what dead orchestrators and crashed guests left, and remove containers whose lease is over.",
        ),
    ] = False,
    model: Annotated[
        bool, typer.Option("--model", help="Also ask the agent's model one question, which may cost money.")
    ] = False,
    json: Json = False,
) -> int:
    """Look for what is amiss on this machine and with its agent, or with one place, which is opened for that.

    Without a place, --model and --reap it costs nothing and creates nothing. The exit code is 1 when something that is
    needed is missing.
    """
    if model and (reap or target is not None):
        raise UsageError("--model asks about the agent, and goes with no place and not with --reap")
    if reap:
        if target not in {None, "local"}:
            raise UsageError("only this machine can be swept", remedy=f"run --on {target} -- hermes-exec doctor --reap")
        return interruptible.run(_reap(json=json))
    return interruptible.run(_doctor(target, model=model, json=json))


async def every_kind() -> list[Kind]:
    """Ask every kind of place at once."""
    return list(await asyncio.gather(*(one_kind(name) for name in known_types())))


async def one_kind(name: str, profile: Profile | None = None) -> Kind:
    """Ask one kind of place how it is here, as far as the usual one goes or what a profile names."""
    try:
        backend = await asyncio.to_thread(backend_class, name)  # importing an SDK takes seconds
        async with asyncio.timeout(_PATIENCE_S):
            return Kind(name, await backend.doctor(profile), backend.features)
    except TimeoutError:
        return Kind(name, [Check(name, "missing", f"no answer within {_PATIENCE_S:g} s")])
    except (HermesError, ImportError) as error:
        why = sdk_missing(name, error) if isinstance(error, ImportError) else error
        if not isinstance(why, HermesError):
            raise
        return Kind(name, [Check(name, "missing", why.what.removeprefix(f"{name}: "), why.remedy)])
    except OSError as error:  # such as a home folder that this user may not look into
        return Kind(name, [Check(name, "missing", f"{error.filename}: {error.strerror}")])


async def _doctor(target: str | None, *, model: bool, json: bool) -> int:
    if target is None:
        from hermes_exec_agent.doctor import examine_agent

        kinds, agent = await asyncio.gather(every_kind(), examine_agent(ask=model))
        kinds = [Kind("hermes-exec", _ourselves()), Kind("agent", agent), *kinds]
        needed = {"hermes-exec", "local", *(["agent"] if model else [])}
    else:
        kinds = await _place(target)
        needed = {kind.type for kind in kinds}
    if json:
        show_json([_facts(kind) for kind in kinds])
    else:
        rows = [
            [kind.type, check.name, check.status, check.detail, check.remedy] for kind in kinds for check in kind.checks
        ]
        show_table(("PLACE", "CHECK", "STATUS", "FOUND", "TRY"), rows)
    return 0 if all(kind.usable for kind in kinds if kind.type in needed) else CHECK_FAILED


def _facts(kind: Kind) -> dict[str, Any]:
    return {"type": kind.type, "usable": kind.usable, "checks": [asdict(check) for check in kind.checks]}


def _ourselves() -> list[Check]:
    """This program: its Python, its files, its record."""
    import os
    import platform
    import sys

    from hermes_exec.cli.open_target import settings
    from hermes_exec.config.load import check
    from hermes_exec.config.paths import exists, state_folder

    checks = [Check("python", "ok", f"{platform.python_version()} at {sys.executable}")]
    try:
        found = settings()
        problems = check(found)
        files = ", ".join(str(path) for path in found.files) or "no file, which is fine"
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
    return [*checks, _check_orchestrators(), *_extras()]


def _extras() -> list[Check]:
    """Each extra that is not installed, but for those that the doctor of a kind of place or of the agent looks for."""
    from hermes_exec_agent.doctor import EXTRAS as OF_AGENT

    elsewhere = {*OF_AGENT, *(row.extra for name, row in BUILT_INS.items() if name != "singularity")}
    return [
        Check(f"extra {extra}", "warning", f"not installed: {', '.join(lacking)}", install_command(extra))
        for extra in EXTRAS
        if extra not in elsewhere and (lacking := missing_modules(extra))
    ]


async def _place(text: str) -> list[Kind]:
    """One place: what its kinds need here, and how it is when it is opened."""
    import time

    from hermes_exec.cli.open_target import opened, planned, settings
    from hermes_exec.config.load import resolve

    target = resolve(text, settings())
    kinds = [await one_kind(profile.type, profile) for profile in target.chain[-1:]]  # the others are needed elsewhere
    began = time.perf_counter()
    plan = planned(text)
    chain = targets_of(plan.backend)
    try:
        async with opened(plan) as terminal:
            took_ms = (time.perf_counter() - began) * 1e3
            checks = [Check("open", "ok", f"within {took_ms:.0f} ms, {terminal.capabilities.carrier} carrier")]
            checks += await _look(terminal)
    except HermesError as error:
        return [*kinds, *walked(text, chain, error)]
    reached = [Kind(each, [Check("open", "ok", "it opens")]) for each in reversed(chain[1:])]
    return [*kinds, *reached, Kind(text, checks)]


def targets_of(backend: Backend) -> list[str]:
    """The target of a place, then of each that it is inside of."""
    found = [backend.target]
    while isinstance(outer := getattr(backend, "outer", None), Backend):
        backend = outer
        if backend.target != found[-1]:
            found.append(backend.target)
    return found


def walked(text: str, chain: list[str], error: HermesError) -> list[Kind]:
    """How far the opening of ``text`` came that ended with ``error``: the places of ``chain``, outermost first."""
    broken = chain.index(error.place) if error.place in chain else 0
    said = [Check("open", "warning", "not tried") for _ in chain[:broken]]
    remedy = _ABOVE if error.remedy.startswith("hermes-exec doctor") else error.remedy
    said += [Check("open", "missing", error.what, remedy)]
    said += [Check("open", "ok", "it opens") for _ in chain[broken + 1 :]]
    return [Kind(place, [check]) for place, check in zip(reversed([text, *chain[1:]]), reversed(said), strict=True)]


async def _look(terminal: Any) -> list[Check]:
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
        checks.append(Check("capabilities", "warning", text, "install Python 3.6 or later there"))
    else:
        checks.append(Check("capabilities", "ok", "everything"))
    if has := capabilities["features"]:
        checks.append(Check("features", "ok", ", ".join(sorted(has))))
    if capabilities["limits"]:
        checks.append(check_limits(await terminal.limits()))
    return checks


def check_limits(enforcement: Enforcement) -> Check:
    """What enforces each limit of a command; a warning where nothing enforces one."""
    by: dict[str, list[str]] = {}
    for name, enforcer in asdict(enforcement).items():
        by.setdefault(enforcer, []).append(name)
    missing = by.pop(Enforcer.NONE, [])
    found = [f"{', '.join(names)} by {enforcer}" for enforcer, names in by.items()]
    if not missing:
        return Check("limits", "ok", "; ".join(found))
    detail = "; ".join([*found, f"nothing enforces {', '.join(missing)}: a command with this limit is refused"])
    return Check("limits", "warning", detail, _LIMITED)


async def _reap(*, json: bool) -> int:

    settled = await settle()
    swept = reap()
    places = [each for found in await asyncio.gather(*map(_reap_kind, known_types())) for each in found]
    removed: list[Swept | Leftover] = [*swept, *places]
    if json:
        show_json([asdict(each) for each in removed])
    elif removed:
        rows = [[each.folder, str(len(each.ended)), each.left] for each in swept]
        rows += [[each.target, "", each.left] for each in places]
        show_table(("REMOVED", "PROCESSES ENDED", "LEFT"), rows)
    else:
        note("nothing is left of crashed guests or of vanished orchestrators")
    return CHECK_FAILED if any(each.left for each in removed) or not settled else 0


async def _reap_kind(name: str) -> list[Leftover]:
    """Remove places of one kind that nobody needs; where there are none to ask, there is nothing to remove."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await reap_expired(await asyncio.to_thread(backend_class, name))
    except (HermesError, TimeoutError):
        return []
