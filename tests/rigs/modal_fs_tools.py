"""The program in a sandbox behind the SDK's file API: reads and writes whole files.

assumed: the command is one JSON argument, content travels by the standard streams, and an error is a JSON object on
standard error (source: the SDK's own calls and their handling of errors).
"""

import errno
import json
import os
import sys

KINDS = {
    errno.ENOENT: "NotFound",
    errno.EISDIR: "IsDirectory",
    errno.ENOTDIR: "NotDirectory",
    errno.EACCES: "PermissionDenied",
}


def copy(source: int, target: int) -> None:
    """Everything."""
    while data := os.read(source, 1 << 20):
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]


def main() -> int:
    """Do what the argument says."""
    ((operation, wanted),) = json.loads(sys.argv[1]).items()
    try:
        if operation == "ReadFile":
            copy(os.open(wanted["path"], os.O_RDONLY), 1)
        elif operation == "WriteFile":
            os.makedirs(os.path.dirname(wanted["path"]) or "/", exist_ok=True)
            copy(0, os.open(wanted["path"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
        else:
            raise NotImplementedError(operation)
    except OSError as error:
        told = {"error_kind": KINDS.get(error.errno or 0, "Io"), "message": os.strerror(error.errno or 0)}
        sys.stderr.write(json.dumps(told))
        return 1
    return 0


sys.exit(main())
