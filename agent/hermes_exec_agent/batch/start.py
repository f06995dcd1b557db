"""Plan a run from its arguments, before anything starts."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.check import validate_table
from hermes_exec.config.load import load_settings, resolve
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec_agent.batch.engine import find_engine
from hermes_exec_agent.batch.formats.function_grading import freeze_check
from hermes_exec_agent.batch.formats.harbor import TARGET as HARBOR_TARGET
from hermes_exec_agent.batch.gpu_hours import set_gpus
from hermes_exec_agent.batch.model_choice import ModelSource, find_price, freeze_model, is_scripted
from hermes_exec_agent.batch.run_folder import RunFolder
from hermes_exec_agent.batch.settings import AGENTS, COMMAND, AgentSettings, Caps, RunSettings
from hermes_exec_agent.batch.tasks import Task, load_tasks
from hermes_exec_agent.batch.trials import list_trials
from hermes_exec_agent.tools.toolset import find_tools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec_agent.batch.formats.harbor_spec import HarborSpec

_OF_CORE = 8
_OF_TRIAL = 100 << 20
"""Bytes of memory that a local trial may take, about, with its target."""
_MOST = 512
_OF_SHARD = 64
_RESTRICT_ADDRESSES = frozenset({"modal", "daytona"})
"""Kinds of targets that can restrict the addresses that a sandbox reaches."""
_REPLY = 8192
"""Tokens of a reply where a cap needs a bound and none is given."""


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The arguments of a run, as a person gives them."""

    tasks: str
    on: Sequence[str] = ()
    models: Sequence[str] = ()
    samples: int = 1
    concurrency: int | None = None
    agent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `AgentSettings`."""
    caps: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `Caps`."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of `RunSettings`."""
    check: str | None = None
    """A function that checks all tasks, as ``FILE.py:FUNCTION``."""
    repos: str | None = None
    """The folder of clones for rows of SWE-bench."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run that can be started."""

    source: str
    tasks: list[Task]
    base: Path | None
    settings: RunSettings
    scripts: dict[str, bytes]
    costs: dict[str, float | None]
    """The upper bound of a trial's cost in US dollars, by model; None if it has no price."""
    repos: Path | None = None

    def create(self, path: Path | None) -> RunFolder:
        """Create the folder of the run; see `RunFolder.create`."""
        path = path or Path(f"batch-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}")
        return RunFolder.create(
            path, self.source, self.tasks, self.settings, base=self.base, scripts=self.scripts, repos=self.repos
        )

    def describe(self) -> dict[str, Any]:
        """Return the trials and the upper bound of their cost, for a person who has not decided yet."""
        trials = list_trials(self.tasks, self.settings)
        per_trial = [self._cost(trial.model) for trial in trials]
        known = [cost for cost in per_trial if cost is not None]
        bound = sum(known) if len(known) == len(per_trial) else None
        if (cap := self.settings.caps.money) is not None:
            bound = min(bound, cap) if bound is not None else cap
        return {
            "tasks": len(self.tasks),
            "targets": sorted({trial.target for trial in trials}),
            "models": [name for name in self.settings.models if name],
            "samples": self.settings.samples,
            "trials": len(trials),
            "concurrency": self.settings.concurrency,
            "shards": self.settings.shards,
            "cost": bound,
        }

    def _cost(self, model: str) -> float | None:
        cost = self.costs.get(model, 0.0)
        cap = self.settings.caps.trial_money
        return cost if cap is None else cap if cost is None else min(cost, cap)


def plan_run(arguments: RunArguments) -> RunPlan:
    """Check everything that can be checked without a target and a request, and return the plan.

    Raises:
        TaskFaults: the faults of the tasks.
        UsageError: an argument is wrong.
        NoModel, ConfigError: a model or a target is not configured.
    """
    repos = None if arguments.repos is None else Path(arguments.repos)
    tasks, base = load_tasks(arguments.tasks, arguments.limits.get("pass_env", ()), repos)
    engine = str(arguments.limits.get("engine", "local"))
    find_engine(engine).check(arguments.limits.get("engine_options", {}))
    caps = _read(Caps, arguments.caps, "caps")
    check, check_file, check_text = freeze_check(arguments.check) if arguments.check else ("", "", b"")
    agent = _read(AgentSettings, {**arguments.agent, "check": check}, "agent")
    if caps.needs_bounds and agent.max_tokens is None:
        agent = agent.model_copy(update={"max_tokens": _REPLY})
    _check_agent(agent, arguments, tasks)
    frozen = [freeze_model(each) for each in arguments.models] or [("main" if agent.asks_model else "", "", b"")]
    settings = _read(
        RunSettings,
        {
            "on": tuple(dict.fromkeys(arguments.on)),
            "models": tuple(dict.fromkeys(name for name, _, _ in frozen)),
            "samples": arguments.samples,
            "agent": agent,
            "caps": caps,
            "concurrency": arguments.concurrency or _choose_concurrency(engine),
            **arguments.limits,
        },
        "settings",
    )
    scripts = {digest: content for _, digest, content in frozen if digest}
    if check:
        scripts[check_file] = check_text
    for task in tasks:
        if task.harbor is not None:
            _check_harbor(task.id, task.harbor, settings)
    targets = {each for task in tasks for each in (settings.on or (task.on or "local",))}
    _check_targets(targets)
    settings = set_gpus(settings, targets)
    costs = _estimate_costs(settings, arguments.models) if agent.asks_model else {}
    count = len(list_trials(tasks, settings))
    settings = settings.model_copy(update={"concurrency": min(settings.concurrency, count)})
    return RunPlan(arguments.tasks, tasks, base, settings, scripts, costs, repos)


def _read(model: Any, fields: Mapping[str, Any], where: str) -> Any:
    return validate_table(model, {name: value for name, value in fields.items() if value is not None}, where)


def _check_agent(agent: AgentSettings, arguments: RunArguments, tasks: Sequence[Task]) -> None:
    if agent.agent not in AGENTS and not agent.agent.removeprefix(COMMAND).strip():
        raise UsageError("--agent command: has no command line", remedy="--agent 'command: my-agent'")
    if agent.agent not in AGENTS and not agent.agent.startswith(COMMAND):
        raise UsageError(
            f"--agent {to_printable(agent.agent)}: there is no such agent",
            remedy=f"{', '.join(AGENTS)}, or {COMMAND} and a command line in the target",
        )
    if agent.agent in ("nop", "oracle") and arguments.models:
        raise UsageError(f"--agent {agent.agent} asks no model", remedy="leave --model out")
    if agent.agent == "oracle" and (missing := [task.id for task in tasks if task.solution is None]):
        raise UsageError(f"--agent oracle: the task {missing[0]} has no 'solution'", remedy="another agent")
    if not agent.check and (missing := [task.id for task in tasks if not task.has_check]):
        raise UsageError(
            f"{to_printable(arguments.tasks)}: the task {missing[0]} has no 'check'",
            remedy="add one, or give --check FILE.py:FUNCTION",
        )
    if agent.asks_model:
        find_tools(agent.tools)


def _check_harbor(name: str, spec: HarborSpec, settings: RunSettings) -> None:
    """Check that the targets honour a task of Harbor, which writes below the root of its containers.

    Raises:
        UsageError: one does not.
    """
    boxes = [spec.box, *(step.verifier.box for step in spec.steps if step.verifier.box is not None)]
    has_hosts = any(box.hosts for box in boxes)
    if has_hosts and not settings.on:
        raise UsageError(f"the task {name} has 'allowed_hosts', which containers here do not restrict",
                         remedy="--on modal, or --on daytona")  # fmt: skip
    if settings.agent.check and spec.has_steps:
        raise UsageError(f"--check: the task {name} has steps with checks of their own", remedy="leave --check out")
    for target in settings.on:
        profile = resolve(target, load_settings()).profile
        kind, why = profile.type, ""
        if kind in ("local", "ssh", "slurm"):
            why = "tasks in Harbor's format need a container"
        elif target != HARBOR_TARGET and spec.has_users:
            why = f"the task {name} names users"
        elif target != HARBOR_TARGET and spec.has_verifier_box:
            why = f"the task {name} has a container for its tests"
        elif has_hosts and kind not in _RESTRICT_ADDRESSES:
            why = f"the task {name} has 'allowed_hosts', which it does not restrict"
        elif has_hosts and _is_widened(profile, [host for box in boxes for host in box.hosts]):
            why = f"the task {name} has 'allowed_hosts' that this profile does not allow"
        elif spec.box.network == "none" and not hasattr(profile, "network"):
            why = f"the task {name} has no network, and it cannot be without one"
        if why:
            raise UsageError(f"--on {to_printable(target)}: {why}", remedy="leave --on out")


def _is_widened(profile: Profile, hosts: Sequence[str]) -> bool:
    """Whether addresses are not among those that a profile allows."""
    if getattr(profile, "network", "open") != "open":
        return True
    allowed = [ip_network(each, strict=False) for each in getattr(profile, "allow", ())]
    return bool(allowed) and not all(any(_is_within(ip_network(host), each) for each in allowed) for host in hosts)


def _is_within(inner: IPv4Network | IPv6Network, outer: IPv4Network | IPv6Network) -> bool:
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)


def _check_targets(targets: set[str]) -> None:
    settings = load_settings()
    for target in sorted(targets):
        try:
            resolve(target, settings)
        except ConfigError as error:
            raise ConfigError(f"--on {to_printable(target)}: {error.what}", remedy=error.remedy) from error


def _estimate_costs(settings: RunSettings, words: Sequence[str]) -> dict[str, float | None]:
    """Return the upper bound of a trial's cost by model, and check that all models exist."""
    source = ModelSource(Path(os.devnull))
    configured = tuple(name for name in settings.models if not is_scripted(name))
    source.check(configured, settings.caps)
    costs: dict[str, float | None] = dict.fromkeys(settings.models, 0.0)
    for name in configured:
        model = source.find(name).main
        price = find_price(model)
        reply = settings.agent.max_tokens or model.window
        if price is None:
            costs[name] = None
        else:
            step = (model.window * max(price.input, price.cached or 0.0) + reply * price.output) / 1e6
            costs[name] = (settings.agent.steps + 1) * step
    return costs if words or configured else {}


def _choose_concurrency(engine: str) -> int:
    """Return how many trials run at once: here by the cores and the free memory, elsewhere those of one shard."""
    if engine != "local":
        return _OF_SHARD
    cores = len(os.sched_getaffinity(0))
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(min(cores * _OF_CORE, free // _OF_TRIAL, _MOST), 1)
