"""Skills with their proofs, and new proofs of them, one at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_exec._async import cancel_and_wait
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.extras import missing_modules
from hermes_exec_agent.skills.registry.home import default_home

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.registry import Registry

_log = logging.getLogger("hermes_exec.web")
_HISTORY = 50
_REASONS = 2


def list_skills() -> dict[str, Any]:
    """Return all skills, or why there are none."""
    if lacking := missing_modules("skills"):
        return {"items": [], "why": f"the package {lacking[0]!r} of the extra 'skills' is not installed"}
    if not default_home().log.exists():
        return {"items": [], "why": ""}
    return {"items": _open().list_facts(archived=True), "why": ""}


def read_skill(name: str) -> dict[str, Any]:
    """Return the record of a skill's current version, its runs and its history.

    Raises:
        UsageError: there is no such skill.
        Refused: another program changed the registry.
    """
    from hermes_exec_agent.skills.registry.counts import RunCounter

    registry = _open()
    skill = registry.skill(name)
    version = registry.version(name)
    facts = version.facts()
    return {
        "name": skill.name, "number": version.number, "state": skill.state, "summary": version.summary,
        "quarantine": skill.kept_back.get(version.number, ""), "level": version.level, "rights": list(version.rights),
        "digest": version.digest, "is_function": version.is_function, "kernel": version.kernel,
        "origin": version.origin.describe(), "policy": version.policy.get("name", ""),
        "interpreter": version.interpreter, "evidence": facts["evidence"],
        "files": [asdict(each) for each in version.files],
        "runs": RunCounter(registry.home.counts).read(version.name, version.number).facts(),
        "history": [
            {"at": each.at, "kind": each.kind, "version": each.version, "why": str(each.facts.get("why") or "")}
            for each in skill.history[-_HISTORY:]
        ],
    }  # fmt: skip


def _open() -> Registry:
    from hermes_exec_agent.skills.registry.registry import Registry

    return Registry()


class Prover:
    """Proves skills again."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.results: dict[str, dict[str, Any]] = {}
        """The state of the latest proof that was asked for here, by the name of the skill."""

    def start(self, name: str) -> None:
        """Begin to prove the current version of a skill.

        Raises:
            UsageError: another proof runs, or the skill has no function.
        """
        if self._task is not None and not self._task.done():
            raise UsageError("another skill is being proven", remedy="wait for its end")
        registry = _open()
        version = registry.version(name)
        if not version.is_function:
            raise UsageError(f"{version.name} is a guide: it has no function that can be proven")
        self.results[version.name] = {"state": "running", "text": "The gate proves it now.", "at": time.time()}
        self._task = asyncio.create_task(self._prove(registry, version.name))

    async def close(self) -> None:
        """End the proof that runs; the version stays as it is."""
        if self._task is not None:
            await cancel_and_wait([self._task])

    async def _prove(self, registry: Registry, name: str) -> None:
        from hermes_exec_agent.skills.registry.admission import prove_again

        try:
            admitted = await prove_again(registry, registry.version(name))
            report = admitted.report
            state = "accepted" if report.accepted else "refused"
            reasons = [each.operator for each in report.findings[:_REASONS] if each.operator]
            text = str(report.level) if report.accepted else ": ".join([str(report.outcome), *reasons])
        except HermesError as error:
            state, text = "failed", str(error)
        except Exception:  # noqa: BLE001  the page shows it, and the log has it
            _log.exception("a proof failed")
            state, text = "failed", "internal error"
        self.results[name] = {"state": state, "text": text, "at": time.time()}
