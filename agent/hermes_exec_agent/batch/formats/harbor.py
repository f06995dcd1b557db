"""Read the folders of Harbor's tasks: ``task.toml`` of the schemas 1.0 to 1.4, with every fault at once.

A key that a trial would not honour is refused by its name, so that no task seems to be easier, or safer, than it is.
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from hermes_exec.config.check import validate_table
from hermes_exec.config.paths import to_printable
from hermes_exec.config.values import Size
from hermes_exec.errors import ConfigError
from hermes_exec_agent.batch.formats.harbor_spec import HarborSpec, HealthSpec, Seconds
from hermes_exec_agent.batch.formats.variables import list_names
from hermes_exec_agent.batch.tasks import MAX_LINE, Task, check_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

TARGET = "docker"
"""The target of these tasks: a container of each task's own image."""
CHECK = "bash /tests/test.sh"
SOLUTION = "bash /solution/solve.sh"
_CONFIG = "task.toml"
_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
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


class _Environment(_Part, frozen=True):
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
    network_mode: str = "public"
    allow_internet: bool | None = None
    allowed_hosts: list[str] | None = None
    workdir: str | None = None
    healthcheck: _Health | None = None
    mcp_servers: list[Any] = Field(default_factory=list[Any])
    skills_dir: str | None = None


class _Agent(_Part, frozen=True):
    timeout_sec: Seconds | None = None
    user: str | int | None = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None


class _Verifier(_Part, frozen=True):
    timeout_sec: Seconds = 600.0
    user: str | int | None = None
    env: Variables = Field(default_factory=dict[str, str])
    environment_mode: str | None = None
    environment: Any = None
    collect: list[Any] = Field(default_factory=list[Any])
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None


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
    multi_step_reward_strategy: str | None = None
    steps: list[Any] | None = None
    artifacts: list[Any] = Field(default_factory=list[Any])


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
    instruction = _read_text(folder / "instruction.md", where)
    try:
        written = tomllib.loads(_read_text(folder / _CONFIG, where))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return [f"{where}/{_CONFIG}: no TOML: {error}"]
    config = validate_table(_Config, written, f"{where}/{_CONFIG}")
    faults = [f"{where}/{_CONFIG}: {text}" for text in (*_list_refused(config), *_list_unpassed(config, passed))]
    faults += [f"{where}/{name}: {why}" for name, why in _list_missing(folder, config)]
    if not instruction.strip():
        faults.append(f"{where}/instruction.md: it is empty")
    if faults:
        return faults
    fields: dict[str, Any] = {
        "id": folder.name,
        "instruction": instruction,
        "check": CHECK,
        "check_timeout_s": config.verifier.timeout_sec,
        "on": TARGET,
        "cwd": config.environment.workdir,
        "solution": SOLUTION if (folder / "solution/solve.sh").is_file() else None,
        "files": folder.name,
        "time_limit_s": config.agent.timeout_sec,
        "metadata": json.loads(json.dumps(config.metadata, default=str)),
        "harbor": _create_spec(config),
    }
    return validate_table(Task, fields, where)


def _create_spec(config: _Config) -> HarborSpec:
    place = config.environment
    memory = place.memory_mb or (None if place.memory is None else max(int(place.memory) >> 20, 1))
    return HarborSpec(
        image=place.docker_image,
        build_timeout_s=place.build_timeout_sec,
        cpus=place.cpus,
        memory_mb=memory,
        network="none" if place.network_mode == "no-network" or place.allow_internet is False else "bridge",
        workdir=place.workdir,
        env=place.env,
        health=None if place.healthcheck is None else _create_health(place.healthcheck),
        agent_user=_to_user(config.agent.user),
        verifier_user=_to_user(config.verifier.user),
        verifier_env=config.verifier.env,
        solution_env=config.solution.env,
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


def _list_refused(config: _Config) -> Iterator[str]:
    """Yield what a trial would not honour."""
    version = config.version or config.schema_version
    place, agent, verifier = config.environment, config.agent, config.verifier
    if version not in _VERSIONS:
        yield f"'schema_version' is {version!r}; known are {', '.join(_VERSIONS)}"
    if place.network_mode not in ("public", "no-network"):
        yield f"'environment.network_mode' {place.network_mode!r} is not supported: the target has no list of hosts"
    if place.os != "linux":
        yield f"'environment.os' {place.os!r} is not supported"
    refused: dict[str, object] = {
        "environment.allowed_hosts": place.allowed_hosts,
        "environment.gpus": place.gpus,
        "environment.gpu_types": place.gpu_types,
        "environment.tpu": place.tpu,
        "environment.mcp_servers": place.mcp_servers,
        "environment.skills_dir": place.skills_dir,
        "agent.network_mode": _differs(agent.network_mode, place.network_mode),
        "agent.allowed_hosts": agent.allowed_hosts,
        "verifier.network_mode": _differs(verifier.network_mode, place.network_mode),
        "verifier.allowed_hosts": verifier.allowed_hosts,
        "verifier.environment": verifier.environment,
        "verifier.environment_mode": verifier.environment_mode not in (None, "shared"),
        "verifier.collect": verifier.collect,
        "multi_step_reward_strategy": config.multi_step_reward_strategy,
        "steps": config.steps,
        "artifacts": config.artifacts,
    }
    for name, value in refused.items():
        if value:
            yield f"'{name}' is not supported"


def _differs(mode: str | None, other: str) -> bool:
    return mode is not None and mode != other


def _list_unpassed(config: _Config, passed: Collection[str]) -> Iterator[str]:
    """Yield the variables of the person's environment that the task reads, and the person did not pass."""
    tables = {
        "environment.env": config.environment.env,
        "verifier.env": config.verifier.env,
        "solution.env": config.solution.env,
    }
    for where, table in tables.items():
        for name, default in list_names(table):
            if default is None and name not in passed:
                yield f"'{where}' reads the variable {name}, which is not passed: --pass-env {name}"


def _list_missing(folder: Path, config: _Config) -> Iterator[tuple[str, str]]:
    """Yield the files that a task needs and lacks, or has and may not have."""
    if not (folder / "tests/test.sh").is_file():
        yield "tests/test.sh", "it is missing"
    if config.environment.docker_image is None and not (folder / "environment/Dockerfile").is_file():
        yield "environment/Dockerfile", "it is missing, and 'environment.docker_image' names no image"
    for name in ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml"):
        if (folder / "environment" / name).exists():
            yield f"environment/{name}", "several containers for one task are not supported"
    if (folder / "trajectory.json").exists():
        yield "trajectory.json", "earlier context of the agent is not supported"


def _read_text(path: Path, where: str) -> str:
    """Return the text of a file of a task.

    Raises:
        ConfigError: it is missing, too long, or no UTF-8.
    """
    named = f"{where}/{path.name}"
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
