"""The file that ``profile init`` writes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

STARTER = """\
# Targets for hermes_exec. docs/configuration.md describes every key, `hermes-exec profile check` checks them.
# A target is used by its name: hermes-exec run --on sandbox -- uname -a

# The target that is used when none is named.
default = "local"

# Take the leading '# ' away from what you want.

# [backends.sandbox]
# type = "docker"
# image = "python:3.11"
# memory = "2 GiB"

# [backends.server]
# type = "ssh"
# host = "server.example.com"
# user = "me"
# key_path = "~/.ssh/id_ed25519"

# [backends.torch]                 # Apptainer, on the server above
# type = "singularity"
# via = "server"
# image = "torch.sif"
# nv = true

# [backends.gpu]
# type = "modal"
# gpu = "A100"
# timeout = 3600
# secrets = ["HUGGINGFACE_TOKEN"]  # looked up in your environment when the target is opened

# [backends.gpu.env]
# HF_HUB_OFFLINE = "0"

# [limits]
# timeout_s = 600.0
"""


def write_default(path: Path) -> None:
    """Write a starter file for this user alone (0600), and its folder if it is missing.

    Raises:
        ConfigError: the file exists already, and is left as it is, or it cannot be written.
    """
    try:
        make_private_folder(path.parent)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(f"{to_printable(path)} is there already", remedy="edit it, or move it away first") from None
    except OSError as error:
        raise ConfigError(
            f"{to_printable(path)} cannot be written: {error.strerror}",
            remedy="export XDG_CONFIG_HOME=… another folder",
        ) from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(STARTER)
