"""Creation of a container, or reuse of the one that has the same name and the same configuration."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hermes_exec._async import create_or_rollback, shield_to_completion
from hermes_exec.errors import HermesError, PlaceUnavailable, Unsupported
from hermes_exec_backends._shared.labels import LEASE
from hermes_exec_backends.docker import images, labels, lease, options
from hermes_exec_backends.docker.channel import Container
from hermes_exec_backends.docker.errors import Refused

if TYPE_CHECKING:
    from hermes_exec_backends.docker.engine import Engine
    from hermes_exec_backends.profiles.docker import DockerProfile

_NOT_FOUND, _CONFLICT = 404, 409
_BAD_REQUEST = 400
"""The status with which engines refuse a missing program; the container may already be gone by then."""
_NO_PROGRAM = (126, 127)
_NO_DRIVER = "could not select device driver"
"""The engine's error for GPUs that it cannot provide; its status is that of any failure."""


async def create(engine: Engine, profile: DockerProfile, name: str, lease_s: float) -> Container:
    """Create and start a container.

    Raises:
        ConfigError, Unsupported: see ``options``.
        PlaceUnavailable: it could not be created; nothing remains.
    """
    security = options.security_options(profile)
    container, host = options.arguments(profile, security)
    if options.needs_enforcement(profile):
        info = await engine.call("docker: the engine's abilities", lambda client: client.info())
        options.check_enforced(profile, info)
    image = await images.image_id(engine, profile)
    marks = labels.container_labels(options.get_fixed_options(profile, image, security), lease_s)
    fields: dict[str, Any] = {"image": image, "name": name, "labels": {**profile.labels, **marks}, **container}
    paths: dict[str, Any] = {"MaskedPaths": [], "ReadonlyPaths": []} if options.SYSTEM_PATHS in security else {}
    for command in lease.commands(lease_s, profile.job_lease_s):
        begun = {"entrypoint": command[:1], "command": command[1:]}
        new = await create_or_rollback(_create_container(engine, {**fields, **begun}, host, paths), Container.remove)
        if await _start_or_remove(engine, new, name, gpus="device_requests" in host):
            return new
    raise PlaceUnavailable(
        f"docker: the image {profile.image} has neither sh nor python3",
        remedy="use an image that has one of them",
    )


async def _start_or_remove(engine: Engine, new: Container, name: str, *, gpus: bool) -> bool:
    """Start a new container; if its image lacks the program, remove it again and return false."""
    try:
        if gpus:
            await _check_requested(new)
        await engine.call(f"docker: container {name} could not be started", lambda client: client.start(new.id))
    except BaseException as error:
        lacking = isinstance(error, Refused) and (error.status == _BAD_REQUEST or await _no_program(new))
        with contextlib.suppress(HermesError):
            await shield_to_completion(new.remove())
        if isinstance(error, Refused) and _NO_DRIVER in error.said:
            raise PlaceUnavailable(
                f"docker: gpus: this engine has no driver for them: {error.said}",
                remedy="install the NVIDIA Container Toolkit on its host and restart the engine, or leave gpus out",
            ) from error
        if not lacking:
            raise
        return False
    return True


async def _check_requested(new: Container) -> None:
    """Refuse an engine that has dropped the request for GPUs: it would start the container without them."""
    if not (await new.inspect())["HostConfig"].get("DeviceRequests"):
        raise Unsupported(
            "docker: gpus: this engine takes the request and ignores it, as Podman's does",
            remedy="use Docker's own engine, or leave gpus out",
        )


async def _no_program(new: Container) -> bool:
    """Return whether a container that did not start still exists, and lacked its program."""
    try:
        return (await new.inspect())["State"].get("ExitCode") in _NO_PROGRAM
    except HermesError:
        return False


async def _create_container(
    engine: Engine, fields: dict[str, Any], host: dict[str, Any], paths: dict[str, Any]
) -> Container:
    def make(client: Any) -> str:
        made = client.create_container(**fields, host_config={**client.create_host_config(**host), **paths})
        return str(made["Id"])

    try:
        return Container(engine, await engine.call(f"docker: container {fields['name']} could not be created", make))
    except Refused as error:
        if error.status != _CONFLICT:
            raise
        raise PlaceUnavailable(
            f"docker: the name {fields['name']!r} is taken by another container",
            remedy=f"reuse = true, another name, or docker rm {fields['name']}",
        ) from error


async def reusable(engine: Engine, profile: DockerProfile) -> Container | None:
    """Return the running container of the profile's name; None if no container has that name.

    Raises:
        PlaceUnavailable: another owner's container, or one with another configuration, has the name. It is unchanged.
    """
    name = str(profile.name)
    container = Container(engine, name)
    try:
        found = await container.inspect()
    except Refused as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    theirs: dict[str, str] = found["Config"].get("Labels") or {}
    remedy = f"another name, or docker rm -f {name}"
    if LEASE not in theirs:
        raise PlaceUnavailable(f"docker: the container {name!r} was not created by hermes_exec", remedy=remedy)
    image = await images.image_id(engine, profile)
    names = labels.differing(options.get_fixed_options(profile, image, options.security_options(profile)), theirs)
    if names:
        raise PlaceUnavailable(
            f"docker: the container {name!r} was created with another configuration: {', '.join(names)}", remedy=remedy
        )
    id = str(found["Id"])
    state = found["State"]
    if state.get("Paused"):
        await engine.call(f"docker: container {name}", lambda client: client.unpause(id))
    elif not state.get("Running"):
        await engine.call(f"docker: container {name} could not be started", lambda client: client.start(id))
    else:
        await Container(engine, id).signal(lease.RENEW)
    return Container(engine, id)
