"""The image of a new container: found, pulled, or built from a Dockerfile or from Python requirements.

A built image is tagged with a digest of all its inputs, so it is built only once and after a change.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_backends.docker import labels
from hermes_exec_backends.docker.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_backends.docker.channel import Container
    from hermes_exec_backends.docker.engine import Engine
    from hermes_exec_backends.profiles.docker import DockerProfile

_NOT_FOUND = 404
_FIRST: tuple[tuple[str, str, list[str]], ...] = (("ENTRYPOINT", "Entrypoint", [""]), ("CMD", "Cmd", []))
"""Instructions, the fields that they set, and their empty forms: an empty list would keep this project's argv there."""
_REPOSITORY = "hermes-exec"
_SAID = 600
_LIST = "/tmp/hermes-exec-requirements.txt"  # noqa: S108  in an image, while it is built


async def image_id(engine: Engine, profile: DockerProfile) -> str:
    """Return the ID of the profile's image, which is then present.

    Raises:
        ConfigError: the Dockerfile or its context cannot be read.
        PlaceUnavailable: it is not present and could not be pulled or built; includes the reason.
    """
    if profile.dockerfile is not None:
        return await _from_dockerfile(engine, profile)
    base = await _existing(engine, profile)
    return await _with_requirements(engine, profile, base) if profile.requirements else base


async def _look_up(engine: Engine, name: str) -> str | None:
    try:
        found = await engine.call(f"docker: image {name}", lambda client: client.inspect_image(name))
    except Refused as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    return str(found["Id"])


async def _existing(engine: Engine, profile: DockerProfile) -> str:
    name = profile.image
    found = await _look_up(engine, name) if profile.pull != "always" else None
    if found is None and profile.pull != "never":
        what = f"docker: the image {name} is not here and could not be pulled"
        try:
            await engine.call(what, lambda client: _pull(client, name, profile.platform))
        except Refused as error:
            remedy = f"docker pull {name}, after docker login for a private image; or check the name and the network"
            raise Refused(what, error.status, error.said, remedy=remedy) from error
        found = await _look_up(engine, name)
    if found is None:
        raise PlaceUnavailable(
            f"docker: there is no image {name} here, and pull = 'never'", remedy=f"docker pull {name}"
        )
    return found


def _pull(client: Any, name: str, platform: str | None) -> None:
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    _follow(client.pull(repository, tag=tag or "latest", stream=True, decode=True, platform=platform))


async def _from_dockerfile(engine: Engine, profile: DockerProfile) -> str:
    file = profile.dockerfile or Path("Dockerfile")
    context = profile.context or file.parent
    digest = await engine.call("docker: the build context", lambda _: _context_digest(file, context))
    digest.update(json.dumps([profile.build_args, profile.platform]).encode())
    named = "image" in profile.model_fields_set
    tag = f"{_REPOSITORY}:{digest.hexdigest()[:24]}"

    def build(client: Any) -> None:
        _follow(
            client.build(
                path=str(context),
                dockerfile=str(file.resolve()),
                tag=tag,
                buildargs=profile.build_args,
                platform=profile.platform,
                pull=profile.pull == "always",
                rm=True,
                forcerm=True,
                decode=True,
            )
        )
        if named:
            from docker.utils import parse_repository_tag

            repository, name = parse_repository_tag(profile.image)
            client.tag(tag, repository, name or "latest", force=True)

    return await _build_once(engine, tag, f"docker: {file} could not be built", build)


def _context_digest(file: Path, context: Path) -> Any:
    """Return a digest of the Dockerfile and of every file that the build can read, with its mode."""
    from docker.utils.build import exclude_paths

    digest = hashlib.sha256()
    try:
        digest.update(file.read_bytes())
        ignored = context / ".dockerignore"
        patterns = ignored.read_text().splitlines() if ignored.is_file() else []
        kept = [line for line in map(str.strip, patterns) if line and not line.startswith("#")]
        for name in sorted(exclude_paths(str(context), kept)):
            path = context / name
            digest.update(f"\0{name}\0{path.lstat().st_mode:o}\0".encode("utf-8", "surrogateescape"))
            if path.is_symlink():
                digest.update(bytes(path.readlink()))
            elif path.is_file():
                with path.open("rb") as content:
                    digest.update(hashlib.file_digest(content, "sha256").digest())
    except OSError as error:
        raise ConfigError(
            f"docker: {error.filename}: {error.strerror}", remedy="check 'dockerfile' and 'context'"
        ) from error
    return digest


async def _with_requirements(engine: Engine, profile: DockerProfile, base: str) -> str:
    text = "".join(f"{line}\n" for line in profile.requirements)
    digest = hashlib.sha256(f"{base}\n{text}".encode()).hexdigest()
    tag = f"{_REPOSITORY}:{digest[:24]}"
    pip = f"python3 -m pip install --no-cache-dir --disable-pip-version-check -r {_LIST} && rm {_LIST}"
    lines = [f"FROM {base}", "USER 0", f"COPY requirements.txt {_LIST}", f"RUN {pip}"]

    def build(client: Any) -> None:
        user = str(client.inspect_image(base)["Config"].get("User") or "")
        dockerfile = "\n".join([*lines, *([f"USER {user}"] if user else [])])
        context = _archive({"Dockerfile": dockerfile.encode(), "requirements.txt": text.encode()})
        _follow(client.build(fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True))

    return await _build_once(engine, tag, "docker: the requirements could not be installed", build)


def _archive(files: dict[str, bytes]) -> io.BytesIO:
    import tarfile

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(data))
    archive.seek(0)
    return archive


async def _build_once(engine: Engine, tag: str, what: str, build: Any) -> str:
    found = await _look_up(engine, tag)
    if found is None:
        await engine.call(what, build)
        found = await _look_up(engine, tag)
    if found is None:
        raise PlaceUnavailable(f"{what}: the engine reported success, but has no {tag}")
    return found


def _follow(progress: Iterable[Any]) -> None:
    """Wait for the end of a pull or a build.

    Raises:
        PlaceUnavailable: it failed; includes the reason, with the last lines of output.
    """
    said = ""
    for step in progress:
        said = (said + str(step.get("stream", "")))[-_SAID:]
        if "error" in step:
            last = " ".join(said.split())
            raise Refused("docker", 0, f"{step['error']}".strip() + (f" (after: {last})" if last else ""))


async def commit(engine: Engine, container: Container, name: str | None) -> str:
    """Commit a container's files as an image with its original image's entry point and command; return its name."""
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name or f"{_REPOSITORY}-snapshot:{secrets.token_hex(6)}")
    tag = tag or "latest"

    def make(client: Any) -> None:
        origin: dict[str, Any] = client.inspect_image(client.inspect_container(container.id)["Image"])["Config"] or {}
        first = [f"{word} {json.dumps(origin.get(key) or none)}" for word, key, none in _FIRST]
        # Empty labels have no owner: the cleanup must not remove containers that others start from the image.
        blank = [f'LABEL {label}=""' for label in labels.OURS]
        client.commit(container.id, repository, tag, changes="\n".join([*first, *blank]))

    await engine.call("docker: the snapshot could not be made", make)
    return f"{repository}:{tag}"
