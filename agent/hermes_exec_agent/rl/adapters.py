"""LoRA adapters that a trainer leaves in a folder: which are whole, which is the newest, and the record of each.

A trainer writes while it is looked at. The header of a file of ``safetensors`` has the length of its content, so that
a file that is still being written is recognized without loading it. Nothing else of a folder is read: other formats of
weights are pickles, which run code when they are loaded.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import time
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.run_folder import link_exclusive

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PICKLES = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth")
_MAX_HEADER = 100 << 20
_MAX_CONFIG = 1 << 20
_PIECE = 1 << 20
_LONGEST = 200
_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64"), 64),
}
"""Bits of an element by the name of its type; the size of other types is not checked."""


class AdapterFault(Exception):
    """A folder has no whole adapter; the text says why."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A whole adapter."""

    folder: Path
    digest: str
    """SHA-256 of its weights and settings."""
    base_model: str
    """The model that it adapts, as its settings name it."""

    @property
    def version(self) -> str:
        """Its version as a policy: digits of its digest."""
        return self.digest[:12]

    @property
    def policy(self) -> str:
        """The name of the policy, which each trajectory has."""
        return f"policy-{self.version}"


def find_adapter(folder: Path) -> Adapter | None:
    """Return the newest whole adapter in ``folder`` or directly below it; None if there is none."""
    for each in _list_candidates(folder):
        try:
            return read_adapter(each)
        except AdapterFault:
            continue
    return None


def scan_adapters(folder: Path) -> tuple[list[Adapter], dict[Path, str]]:
    """Return the whole adapters in ``folder`` or directly below it, the newest first, and the faults of the others."""
    found: list[Adapter] = []
    faults: dict[Path, str] = {}
    for each in _list_candidates(folder):
        try:
            found.append(read_adapter(each))
        except AdapterFault as fault:
            faults[each] = str(fault)
    return found, faults


def _list_candidates(folder: Path) -> list[Path]:
    """Return the folders that have a file with weights, the newest first."""
    candidates = [folder]
    try:
        candidates += [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError:
        return []
    found: list[tuple[float, str, Path]] = []
    for each in candidates:
        for name in (WEIGHTS, *_PICKLES):
            try:
                found.append(((each / name).lstat().st_mtime, each.name, each))
            except OSError:
                continue
            break
    return [each for _, _, each in sorted(found, reverse=True)]


def read_adapter(folder: Path) -> Adapter:
    """Check the adapter of a folder, and return it.

    Raises:
        AdapterFault: it has none, or not a whole one.
    """
    try:
        if not (folder / WEIGHTS).is_file() and (pickle := next((p for p in _PICKLES if (folder / p).exists()), "")):
            raise AdapterFault(f"{pickle} is a pickle, which can run code; let the trainer save {WEIGHTS}")
        with _open_file(folder / CONFIG) as file:
            config = _parse(CONFIG, file.read(_MAX_CONFIG))
        if (kind := config.get("peft_type")) != "LORA":
            raise AdapterFault(f"{CONFIG}: its peft_type is {str(kind)[:_LONGEST]!r}, not 'LORA'")
        with _open_file(folder / WEIGHTS) as file:
            _check_weights(file)
        return Adapter(folder, digest_adapter(folder), str(config.get("base_model_name_or_path") or "")[:_LONGEST])
    except OSError as error:
        name = "" if error.filename is None else f"{os.path.basename(error.filename)}: "  # noqa: PTH119  may be bytes
        raise AdapterFault(f"{to_printable(name)}{error.strerror}") from error


def _parse(name: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise AdapterFault(f"{name}: it is not JSON, or not completely written") from None
    if not isinstance(found, dict):
        raise AdapterFault(f"{name}: it is not a JSON object")
    return cast("dict[str, Any]", found)


def _check_weights(file: BinaryIO) -> None:
    """Check that a file of safetensors is whole: its tensors follow each other up to its end."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(_MAX_HEADER, size - 8):
        raise AdapterFault(f"{WEIGHTS}: it is not a file of safetensors, or not completely written")
    spans: list[tuple[int, int]] = [(0, 0)]
    header = _parse(WEIGHTS, file.read(length))
    for name, each in header.items():
        if name == "__metadata__":
            continue
        try:
            begin, end = each["data_offsets"]
            bits = _BITS.get(each["dtype"])
            elements = prod(each["shape"])
            is_right = type(begin) is type(end) is type(elements) is int and begin <= end
        except (TypeError, KeyError, ValueError):
            is_right, begin, end, bits, elements = False, 0, 0, None, 0
        if not is_right or (bits is not None and elements * bits != (end - begin) * 8):
            raise AdapterFault(f"{WEIGHTS}: its header is wrong at the tensor {to_printable(name[:_LONGEST])}")
        spans.append((begin, end))
    spans.sort()
    if len(spans) < 2 or any(before[1] != after[0] for before, after in pairwise(spans)):
        raise AdapterFault(f"{WEIGHTS}: its header has no tensors, or some that overlap")
    if 8 + length + spans[-1][1] != size:
        raise AdapterFault(f"{WEIGHTS}: it has {size} bytes of {8 + length + spans[-1][1]}")


def copy_adapter(adapter: Adapter, folder: Path) -> bool:
    """Copy an adapter; return False if it changed meanwhile.

    Raises:
        OSError: it cannot be read, or not be written.
    """
    for name in (CONFIG, WEIGHTS):
        with _open_file(adapter.folder / name) as source, (folder / name).open("xb") as into:
            shutil.copyfileobj(source, into, _PIECE)
    return digest_adapter(folder) == adapter.digest


def _open_file(path: Path) -> BinaryIO:
    """Open a file that a trainer wrote. A link could name any file of this machine, and a FIFO would block.

    Raises:
        OSError: it is not a regular file, or cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link", path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return os.fdopen(handle, "rb")


def digest_adapter(folder: Path) -> str:
    """Return the digest of an adapter.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        with _open_file(folder / name) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        digest.update(name.encode())
    return digest.hexdigest()


def record_adapter(folder: Path, adapter: Adapter) -> None:
    """Record an adapter as a policy in the folder of an environment, unless it is recorded.

    Raises:
        HermesError: it cannot be written.
    """
    content = {
        "policy": adapter.policy,
        "digest": adapter.digest,
        "base_model": adapter.base_model,
        "folder": str(adapter.folder),
        "at": round(time.time(), 3),
    }
    try:
        make_private_folder(folder / "policies")
        link_exclusive(folder / "policies" / f"{adapter.policy}.json", content)
    except OSError as error:
        raise HermesError(f"{to_printable(folder)}: {error.strerror}") from error
