"""The lines of a host's known_hosts files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_backends.ssh.host import Host


def lines(host: Host) -> list[tuple[Path, int, str]]:
    """Return every entry with its file and its line number.

    Raises:
        PlaceUnavailable: an existing file cannot be read.
    """
    found: list[tuple[Path, int, str]] = []
    for path in host.known_hosts:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise PlaceUnavailable(f"ssh: {path} cannot be read: {error.strerror}") from error
        found += [(path, number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    return [row for row in found if row[2] and not row[2].startswith("#")]


def is_revoked(host: Host, key: str) -> bool:
    """Return whether a key, in base64, is marked as revoked."""
    return any(line.startswith("@revoked") and key in line.split() for _, _, line in lines(host))
