"""Removal of instances on this machine whose lease process was killed, so that their leases never expire."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from hermes_exec.backend import Leftover
from hermes_exec.config.registry import find_backend_class
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.transport.shell.target import run_helper
from hermes_exec_backends.singularity import scripts

_NAME = re.compile(r"hx-[0-9a-f]{12}", re.ASCII)


async def reap(program: str) -> list[Leftover]:
    """Remove all such instances; those with a running lease process stay.

    Raises:
        PlaceUnavailable: the program does not list its instances.
    """
    here = find_backend_class("local")()
    swept: list[Leftover] = []
    for name in await _names(program):
        if not await asyncio.to_thread(_is_held, name):
            reply = await run_helper(here, ["/bin/sh", "-c", scripts.END, "sh", name, program])
            left = reply.failure if name in await _names(program) else ""
            swept.append(Leftover(f"singularity:@{name}", left))
    return swept


async def _names(program: str) -> list[str]:
    reply = await run_helper(find_backend_class("local")(), [program, "--silent", "instance", "list", "--json"])
    try:
        found: list[dict[str, Any]] = json.loads(reply.stdout)["instances"] or []
        return [str(each["instance"]) for each in found if _NAME.fullmatch(str(each["instance"]))]
    except (ValueError, KeyError, TypeError) as error:
        raise PlaceUnavailable(f"singularity: {program} instance list: {reply.failure}") from error


def _is_held(name: str) -> bool:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = file.read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        if name.encode() in argv and any(b"hx ready" in word for word in argv):
            return True
    return False
