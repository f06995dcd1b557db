"""Files of a target, and their transfer to and from this machine."""

from hermes_exec.files.files import Files
from hermes_exec.files.info import (
    Change,
    FileInfo,
    Kind,
    Progress,
    ResolvedPath,
    Skipped,
    SyncReport,
    TransferReport,
)

__all__ = [
    "Change",
    "FileInfo",
    "Files",
    "Kind",
    "Progress",
    "ResolvedPath",
    "Skipped",
    "SyncReport",
    "TransferReport",
]
