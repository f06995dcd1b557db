"""Built images: from a definition, from a Dockerfile, or from an image and Python requirements.

Each becomes the text of a definition, and the outer target builds it once: the file is named by a digest of the text.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
from typing import TYPE_CHECKING

from hermes_exec.config.registry import explain_missing_sdk
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec.transport.shell.target import run_helper

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.backend import Backend
    from hermes_exec_backends.profiles.singularity import SingularityProfile

ADDRESS = re.compile(r"(docker|library|oras|docker-daemon|shub)://(.+)", re.DOTALL)
"""An image that the runtime fetches, and not a path."""
_BUILD = r"""
program=$1 name=$2
folder=${XDG_CACHE_HOME:-$HOME/.cache}/hermes-exec/images
image=$folder/$name.sif part=$folder/.$name.$$
mkdir -p "$folder" || exit
if [ ! -e "$image" ]; then
    trap 'rm -f "$part".*' EXIT
    cat >"$part.def" || exit
    build() { "$program" -s build --force "$part.sif" "$part.def" </dev/null >"$part.said" 2>&1; }
    # The first may be refused to a root that lacks a capability, for which a user namespace is enough.
    build || { export APPTAINER_USERNS=1 SINGULARITY_USERNS=1; build; } || { tail -n 20 "$part.said" >&2; exit 1; }
    mv "$part.sif" "$image" || exit
fi
echo "hx $image"
"""


async def ensure_image(outer: Backend, program: str, profile: SingularityProfile) -> str:
    """Return the path, in the outer target, of the profile's image; build it unless it exists.

    Raises:
        ConfigError: the definition cannot be read, or is neither a definition nor a Dockerfile.
        PlaceUnavailable: it could not be built; includes the reason.
    """
    text = await asyncio.to_thread(definition_of, profile)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    reply = await run_helper(outer, ["/bin/sh", "-c", _BUILD, "sh", program, name], text.encode())
    line = reply.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if reply.exit.code != 0 or not line.startswith("hx /"):
        what = profile.definition or f"{profile.image} with its requirements"
        raise PlaceUnavailable(f"singularity: {what} could not be built at {outer.target}: {reply.failure}")
    return line.removeprefix("hx ")


def definition_of(profile: SingularityProfile) -> str:
    """Return the text of the profile's definition.

    Raises:
        ConfigError: see ``ensure_image``.
        PlaceUnavailable: a Dockerfile is to be converted, and spython is not installed.
    """
    text = _from_file(profile.definition) if profile.definition else _header(profile.image or "")
    if profile.requirements:
        words = " ".join(shlex.quote(word) for word in profile.requirements)
        text += f"\n%post\n    python3 -m pip install --no-cache-dir {words}\n"
    return text


def _header(image: str) -> str:
    address = ADDRESS.fullmatch(image)
    kind, source = (address[1], address[2]) if address else ("localimage", image)
    return f"Bootstrap: {kind}\nFrom: {source}\n"


def _from_file(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the definition {path} cannot be read: {error}") from error
    if re.search(r"^\s*bootstrap\s*:", text, re.IGNORECASE | re.MULTILINE):
        return text
    if re.search(r"^\s*FROM\s", text, re.MULTILINE):
        return _from_dockerfile(path)
    raise ConfigError(f"{path} is neither a definition ('Bootstrap: …') nor a Dockerfile ('FROM …')")


def _from_dockerfile(path: Path) -> str:
    try:
        from spython.main.parse.parsers import DockerParser
        from spython.main.parse.writers import SingularityWriter
    except ImportError as error:
        raise explain_missing_sdk("singularity", error) from error
    return SingularityWriter(DockerParser(str(path)).parse()).convert()
