"""Read the manifest of a skill as the gate does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_policies.gate.child_process import ChildProcess
from hermes_exec_policies.gate.manifest import read_manifest

if TYPE_CHECKING:
    from hermes_exec_policies.gate.manifest import Manifest
    from hermes_exec_policies.gate.tree import Tree


async def read(tree: Tree, folder: str, *taken: str) -> Manifest:
    """The manifest of a tree whose folder had this name, next to skills with the ``taken`` names."""
    async with ChildProcess() as child:
        return (await read_manifest(child, tree, folder, taken))[0]
