"""Read the folders of Harbor's tasks: ``task.toml`` of the schemas 1.0 to 1.4, with every fault at once.

A key that a trial would not honour is refused by its name, so that no task seems to be easier, or safer, than it is.
"""

from __future__ import annotations

import json
import re
import tomllib
from ipaddress import ip_network
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from hermes_exec.config.check import validate_table
from hermes_exec.config.paths import to_printable
from hermes_exec.config.values import Size
from hermes_exec.errors import ConfigError
from hermes_exec_agent.batch.formats.harbor_artifacts import MANIFEST
from hermes_exec_agent.batch.formats.harbor_spec import (
    ArtifactSpec,
    BoxSpec,
    CollectSpec,
    HarborSpec,
    HealthSpec,
    Seconds,
    StepSpec,
    VerifierSpec,
)
from hermes_exec_agent.batch.formats.variables import list_names
from hermes_exec_agent.batch.tasks import MAX_LINE, Task, check_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

TARGET = "docker"
"""The target of these tasks: a container of each task's own image."""
CHECK = "bash /tests/test.sh"
SOLUTION = "bash /solution/solve.sh"
_CONFIG = "task.toml"
_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_MAIN = "main"
"""The service of a task that is its own container."""
_NONE = "no-network"
_ONE = "a task has one container"
_STEP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_MOST = 10_000
"""Folders that are searched."""
Amount = Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)]
Variables = dict[str, str]


class _Part(BaseModel, frozen=True, extra="forbid", strict=True):
    """A table of ``task.toml``."""


class _Health(_Part, frozen=True):
    command: Annotated[str, Field(min_length=1)]
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0, strict=False)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Annotated[int, Field(ge=1)] = 3


class _Network(_Part, frozen=True):
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None


class _Environment(_Network, frozen=True):
    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: str = "linux"
    cpus: Amount | None = None
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    memory: Size | None = None
    storage_mb: Any = None
    storage: Any = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: Any = None
    env: Variables = Field(default_factory=dict[str, str])
    allow_internet: bool | None = None
    workdir: str | None = None
    healthcheck: _Health | None = None
    mcp_servers: list[Any] = Field(default_factory=list[Any])
    skills_dir: str | None = None

    @property
    def mode(self) -> str:
        """The network's mode, also from the key of early schemas."""
        if self.network_mode is None and self.allowed_hosts is None and self.allow_internet is False:
            return "no-network"
        return self.network_mode or "public"


class _Agent(_Network, frozen=True):
    timeout_sec: Seconds | None = None
    user: str | int | None = None


class _Collect(_Part, frozen=True):
    command: Annotated[str, Field(min_length=1)]
    service: str = _MAIN
    timeout_sec: Seconds = 60.0
    user: str | int | None = None


class _Verifier(_Network, frozen=True):
    timeout_sec: Seconds = 600.0
    user: str | int | None = None
    env: Variables = Field(default_factory=dict[str, str])
    environment_mode: Literal["shared", "separate"] | None = None
    environment: _Environment | None = None
    collect: list[_Collect] = Field(default_factory=list[_Collect])

    @property
    def mode(self) -> str | None:
        """Where the tests run; None if another level says it."""
        return self.environment_mode or (None if self.environment is None else "separate")


class _Artifact(_Part, frozen=True):
    source: Annotated[str, Field(min_length=1)]
    destination: str | None = None
    exclude: list[str] = Field(default_factory=list[str])
    service: str | None = None


class _Step(_Part, frozen=True):
    name: str
    agent: _Agent = _Agent()
    verifier: _Verifier = _Verifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: _Health | None = None
    artifacts: list[str | _Artifact] = Field(default_factory=list["str | _Artifact"])


class _Solution(_Part, frozen=True):
    env: Variables = Field(default_factory=dict[str, str])


class _Config(_Part, frozen=True):
    schema_version: str = "1.0"
    version: str | None = None
    """The name of the key in early schemas."""
    task: dict[str, Any] = Field(default_factory=dict[str, Any])
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    source: str | None = None
    environment: _Environment = _Environment()
    agent: _Agent = _Agent()
    verifier: _Verifier = _Verifier()
    solution: _Solution = _Solution()
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: list[_Step] = Field(default_factory=list[_Step])
    artifacts: list[str | _Artifact] = Field(default_factory=list["str | _Artifact"])


def is_task(folder: Path) -> bool:
    """Whether a folder is a task of this format."""
    return (folder / _CONFIG).is_file()


def find_tasks(source: Path) -> tuple[Path, list[Path]]:
    """Return the folder that ``files`` starts at, and the folders of the tasks, by name."""
    if is_task(source):
        return source.absolute().parent, [source.absolute()]
    found = sorted(path.parent for path in source.glob(f"*/{_CONFIG}"))
    return source.absolute(), [path.absolute() for path in found[:_MOST]]


def read_tasks(source: Path, passed: Collection[str]) -> Iterator[tuple[str, Task | list[str]]]:
    """Yield the folder of each task, and the task or its faults.

    ``passed`` are the names of variables that tasks may read.
    """
    base, folders = find_tasks(source)
    for folder in folders:
        where = to_printable(source / folder.name if folder != source.absolute() else source)
        try:
            yield where, _read_task(base, folder, where, passed)
        except ConfigError as error:
            yield where, error.what.splitlines()


def _read_task(base: Path, folder: Path, where: str, passed: Collection[str]) -> Task | list[str]:
    if problem := check_folder(base, folder.name):
        return [f"{where}: it {problem}"]
    try:
        written = tomllib.loads(_read_text(folder / _CONFIG, f"{where}/{_CONFIG}"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return [f"{where}/{_CONFIG}: not TOML: {error}"]
    config = validate_table(_Config, written, f"{where}/{_CONFIG}")
    faults = [f"{where}/{_CONFIG}: {text}" for text in (*list_refused(config), *_list_unpassed(config, passed))]
    if any(_STEP.fullmatch(step.name) is None for step in config.steps):
        return faults
    faults += [f"{where}/{name}: {why}" for name, why in _list_missing(folder, config)]
    instructions: list[str] = []
    for name in [f"steps/{step.name}/instruction.md" for step in config.steps] or ["instruction.md"]:
        instructions.append(_read_text(folder / name, f"{where}/{name}"))
        if not instructions[-1].strip():
            faults.append(f"{where}/{name}: it is empty")
    if faults:
        return faults
    spec = _create_spec(folder, config, instructions)
    fields: dict[str, Any] = {
        "id": folder.name,
        "instruction": instructions[0],
        "check": CHECK,
        "check_timeout_s": max(step.verifier.timeout_s for step in spec.steps),
        "on": TARGET,
        "cwd": config.environment.workdir,
        "solution": SOLUTION if all(step.solution is not None for step in spec.steps) else None,
        "files": folder.name,
        "time_limit_s": spec.steps[0].time_limit_s,
        "metadata": json.loads(json.dumps(config.metadata, default=str)),
        "harbor": spec,
    }
    return validate_table(Task, fields, where)


def _create_spec(folder: Path, config: _Config, instructions: Sequence[str]) -> HarborSpec:
    steps: list[_Step | None] = [*config.steps] or [None]
    return HarborSpec(
        box=_create_box(config.environment),
        steps=tuple(_create_step(folder, config, step, text) for step, text in zip(steps, instructions, strict=True)),
        strategy=config.multi_step_reward_strategy or "mean",
        solution_env=config.solution.env,
    )


def _create_step(folder: Path, config: _Config, step: _Step | None, instruction: str) -> StepSpec:
    """Return a step; ``step`` is None for a task without any."""
    artifacts = tuple(map(_create_artifact, [*config.artifacts, *(step.artifacts if step else ())]))
    if step is None:
        return StepSpec(
            instruction=instruction,
            time_limit_s=config.agent.timeout_sec,
            agent_user=_to_user(config.agent.user),
            verifier=_create_verifier(folder, config, None),
            solution=_find_solution(folder, ""),
            artifacts=artifacts,
        )
    own = f"steps/{step.name}"
    least = step.min_reward
    return StepSpec(
        name=step.name,
        instruction=instruction,
        time_limit_s=step.agent.timeout_sec or config.agent.timeout_sec,
        agent_user=_to_user(config.agent.user if step.agent.user is None else step.agent.user),
        verifier=_create_verifier(folder, config, step),
        health=None if step.healthcheck is None else _create_health(step.healthcheck),
        workdir=f"{own}/workdir" if (folder / own / "workdir").is_dir() else None,
        has_setup=(folder / own / "workdir/setup.sh").is_file(),
        solution=_find_solution(folder, own),
        min_reward={} if least is None else dict(least) if isinstance(least, dict) else {"reward": least},
        artifacts=artifacts,
    )


def _find_solution(folder: Path, step: str) -> str | None:
    """Return the folder of a solution: that of the step, else that of the task."""
    names = [f"{step}/solution", "solution"] if step and (folder / step / "solution").is_dir() else ["solution"]
    return names[0] if (folder / names[0] / "solve.sh").is_file() else None


def _create_artifact(artifact: str | _Artifact) -> ArtifactSpec:
    if isinstance(artifact, str):
        return ArtifactSpec(source=artifact)
    return ArtifactSpec(
        source=artifact.source, destination=artifact.destination or None, exclude=tuple(artifact.exclude)
    )


def _create_verifier(folder: Path, config: _Config, step: _Step | None) -> VerifierSpec:
    """Return how tests run: a step's own keys come before those of the task."""
    task, own = config.verifier, step.verifier if step else config.verifier
    shared = ["tests"] if (folder / "tests").is_dir() else []
    extra = [f"steps/{step.name}/tests"] if step and (folder / "steps" / step.name / "tests").is_dir() else []
    collect = [*task.collect, *(own.collect if step else ())]
    return VerifierSpec(
        timeout_s=own.timeout_sec,
        user=_to_user(task.user if own.user is None else own.user),
        env={**task.env, **own.env},
        folders=(*shared, *extra),
        collect=tuple(
            CollectSpec(command=each.command, timeout_s=each.timeout_sec, user=_to_user(each.user)) for each in collect
        ),
        box=_create_verifier_box(folder, config, step),
    )


def _create_verifier_box(folder: Path, config: _Config, step: _Step | None) -> BoxSpec | None:
    """Return the container of the tests; None if they run in that of the agent.

    Its image is that of the step's verifier, a Dockerfile with the tests, or that of the agent's container.
    """
    levels = [(step.verifier, f"steps/{step.name}/tests")] if step else []
    levels.append((config.verifier, "tests"))
    if (next((verifier.mode for verifier, _ in levels if verifier.mode), None) or "shared") == "shared":
        return None
    named = next((verifier.environment for verifier, _ in levels if verifier.environment is not None), None)
    box = _create_box(named or config.environment)
    for verifier, name in levels:
        image = verifier.environment.docker_image if verifier.environment else None
        if image or (folder / name / "Dockerfile").is_file():
            return box.model_copy(update={"image": image, "folder": name, "has_tests": True})
    return box.model_copy(update={"image": config.environment.docker_image})


def _create_box(place: _Environment) -> BoxSpec:
    memory = place.memory_mb or (None if place.memory is None else max(int(place.memory) >> 20, 1))
    return BoxSpec(
        image=place.docker_image,
        build_timeout_s=place.build_timeout_sec,
        cpus=place.cpus,
        memory_mb=memory,
        network="none" if place.mode == "no-network" else "bridge",
        hosts=tuple(map(str, map(ip_network, place.allowed_hosts or ()))),
        workdir=place.workdir,
        env=place.env,
        health=None if place.healthcheck is None else _create_health(place.healthcheck),
    )


def _create_health(health: _Health) -> HealthSpec:
    return HealthSpec(
        command=health.command,
        interval_s=health.interval_sec,
        timeout_s=health.timeout_sec,
        start_period_s=health.start_period_sec,
        retries=health.retries,
    )


def _to_user(user: str | int | None) -> str | None:
    return None if user is None else str(user)


def list_refused(config: _Config) -> Iterator[str]:
    """Yield what a trial would not honour."""
    version = config.version or config.schema_version
    if version not in _VERSIONS:
        yield f"'schema_version' is {version!r}; known are {', '.join(_VERSIONS)}"
    yield from _list_refused_box("environment", config.environment)
    yield from _list_refused_roles("", config.agent, config.verifier, config.environment)
    yield from _list_refused_artifacts("artifacts", config.artifacts)
    if config.multi_step_reward_strategy and not config.steps:
        yield "'multi_step_reward_strategy' needs 'steps'"
    names: set[str] = set()
    for number, step in enumerate(config.steps, 1):
        where = f"steps[{number}]"
        if _STEP.fullmatch(step.name) is None:
            yield f"'{where}.name' {to_printable(step.name)!r} should be letters, digits, '.', '_' and '-'"
        elif step.name.casefold() in names:
            yield f"'{where}.name' {step.name!r} occurs twice"
        names.add(step.name.casefold())
        yield from _list_refused_roles(f"{where}.", step.agent, step.verifier, config.environment)
        yield from _list_refused_artifacts(f"{where}.artifacts", step.artifacts)


def _list_refused_box(where: str, place: _Environment) -> Iterator[str]:
    if place.mode not in ("public", "no-network", "allowlist"):
        yield f"'{where}.network_mode' {place.network_mode!r} is not supported"
    if place.mode == "allowlist" and not place.allowed_hosts:
        yield f"'{where}.allowed_hosts' is missing or empty; 'network_mode' {_NONE!r} allows no host"
    if place.mode != "allowlist" and place.allowed_hosts:
        yield f"'{where}.allowed_hosts' needs 'network_mode' 'allowlist'"
    for host in place.allowed_hosts or ():
        if not _is_address(host):
            yield (
                f"'{where}.allowed_hosts' {to_printable(host)!r} is not supported: no target restricts names of hosts; "
                "addresses and ranges are possible with --on modal or daytona"
            )
    if place.os.lower() != "linux":
        yield f"'{where}.os' {place.os!r} is not supported"
    for name in ("gpus", "gpu_types", "tpu", "mcp_servers", "skills_dir"):
        if getattr(place, name):
            yield f"'{where}.{name}' is not supported"


def _is_address(host: str) -> bool:
    try:
        ip_network(host)
    except ValueError:
        return False
    return True


def _list_refused_roles(where: str, agent: _Agent, verifier: _Verifier, place: _Environment) -> Iterator[str]:
    """Yield what the agent or the tests of a task or a step ask for in vain; ``where`` ends with a dot."""
    if _differs(agent, place):
        yield f"'{where}agent.network_mode' is not supported: it differs from the environment's"
    if _differs(verifier, verifier.environment or place):
        yield f"'{where}verifier.network_mode' is not supported: it differs from the environment's"
    if verifier.environment is not None:
        yield from _list_refused_box(f"{where}verifier.environment", verifier.environment)
        if verifier.environment_mode == "shared":
            yield f"'{where}verifier.environment' needs 'environment_mode' 'separate'"
    for each in verifier.collect:
        if each.service != _MAIN:
            yield f"'{where}verifier.collect' names the service {to_printable(each.service)!r}, and {_ONE}"


def _differs(role: _Network, place: _Environment) -> bool:
    hosts = role.allowed_hosts is not None and role.allowed_hosts != place.allowed_hosts
    return hosts or (role.network_mode is not None and role.network_mode != place.mode)


def _list_refused_artifacts(where: str, artifacts: Sequence[str | _Artifact]) -> Iterator[str]:
    for each in map(_create_artifact, artifacts):
        source, destination = PurePosixPath(each.source), PurePosixPath(each.destination or "kept")
        if not source.is_absolute() or ".." in source.parts or "\0" in each.source or len(source.parts) == 1:
            yield f"'{where}' {to_printable(each.source)!r} should be an absolute path without '..'"
        if destination.is_absolute() or {"..", "\\"} & set(destination.parts) or str(destination) in (".", MANIFEST):
            yield f"'{where}' has the destination {to_printable(each.destination)!r}, which leads out of the artifacts"
    for artifact in artifacts:
        if isinstance(artifact, _Artifact) and artifact.service not in (None, _MAIN):
            yield f"'{where}' names the service {to_printable(artifact.service)!r}, and {_ONE}"


def _list_unpassed(config: _Config, passed: Collection[str]) -> Iterator[str]:
    """Yield the variables of the person's environment that the task reads, and the person did not pass."""
    tables = {"environment.env": config.environment.env, "solution.env": config.solution.env}
    verifiers = {"": config.verifier} | {f"steps.{step.name}.": step.verifier for step in config.steps}
    for where, verifier in verifiers.items():
        tables[f"{where}verifier.env"] = verifier.env
        tables[f"{where}verifier.environment.env"] = verifier.environment.env if verifier.environment else {}
    for where, table in tables.items():
        for name, default in list_names(table):
            if default is None and name not in passed:
                yield f"'{where}' reads the variable {name}, which is not passed: --pass-env {name}"


def _list_missing(folder: Path, config: _Config) -> Iterator[tuple[str, str]]:
    """Yield the files that a task needs and lacks, or has and may not have."""
    steps: list[_Step | None] = [*config.steps] or [None]
    for step in steps:
        own = f"steps/{step.name}/tests" if step else "tests"
        box = _create_verifier_box(folder, config, step)
        has_script = any((folder / name / "test.sh").is_file() for name in ("tests", own))
        if not has_script and not (box and box.has_tests and box.image):
            yield f"{own}/test.sh", "it is missing"
        if step and (folder / f"steps/{step.name}/trajectory.json").exists():
            yield f"steps/{step.name}/trajectory.json", "earlier context of the agent is not supported"
    if config.environment.docker_image is None and not (folder / "environment/Dockerfile").is_file():
        yield "environment/Dockerfile", "it is missing, and 'environment.docker_image' names no image"
    boxes = ["environment", "tests", *(f"steps/{step.name}/tests" for step in config.steps)]
    for place in boxes:
        for name in ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml"):
            if (folder / place / name).exists():
                yield f"{place}/{name}", "several containers for one task are not supported"
    if (folder / "trajectory.json").exists():
        yield "trajectory.json", "earlier context of the agent is not supported"


def _read_text(path: Path, named: str) -> str:
    """Return the text of a file of a task.

    Raises:
        ConfigError: it is missing, too long, or no UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LINE + 1)
        if len(data) > MAX_LINE:
            raise ConfigError(f"{named}: it is longer than {MAX_LINE} bytes")
        return data.decode()
    except OSError as error:
        raise ConfigError(f"{named}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{named}: byte {error.start + 1} is not valid UTF-8") from None
