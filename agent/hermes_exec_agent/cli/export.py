"""Export JSON to a file of the person."""

import os
from typing import Any

from hermes_exec.cli.global_flags import flags
from hermes_exec.errors import UsageError
from hermes_exec_agent.state_paths import create_private_file


def export_json(value: Any, output: str | None) -> None:
    """Print a value as JSON, or write it to a new file that only this user can read.

    Raises:
        UsageError: the file exists, or cannot be created.
    """
    import json

    text = json.dumps(value, ensure_ascii=False, indent=2)
    if output is None:
        print(flags.clean(text))
        return
    try:
        file = create_private_file(os.path.expanduser(output))  # noqa: PTH111  takes a text
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}", remedy="a new file in a folder that exists") from error
    with file:
        file.write(f"{text}\n")
