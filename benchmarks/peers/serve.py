"""Installs a peer into a virtual environment of its own, and asks it for one command at a time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_CACHE = _HERE.parent.parent / ".cache" / "peers"
PEERS = {"hermes-agent": "0.19.0", "swe-rex": "1.4.0", "mini-swe-agent": "2.4.6"}
"""Distribution and version, of those that run commands."""
MEMORY_PEERS = {"hermes-agent": PEERS["hermes-agent"], "pydantic-ai-harness": "0.62.0"}
"""The same, of those that remember."""
MORE = {("hermes-agent", "mcp"): "hermes-agent[mcp]", ("pydantic-ai-harness", "mcp"): "pydantic-ai-slim[mcp]"}
"""What a part of a peer needs besides the distribution."""


def install(name: str, place: str = "") -> Path:
    """The interpreter of a peer's environment, with what the part ``place`` needs."""
    version = {**PEERS, **MEMORY_PEERS}[name]
    more = MORE.get((name, place), "")
    folder = _CACHE / f"{name}-{version}{'-' + place if more else ''}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        uv = str(Path(sys.executable).parent / "uv")
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
        packages = [f"{name}=={version}", *filter(None, (more,))]
        subprocess.run([uv, "pip", "install", "-q", "--python", str(python), *packages], check=True)
        (folder / "ready").touch()
    return python


class Peer:
    """A peer's process, which runs a command for each line that it is given."""

    def __init__(self, name: str, home: str, place: str = "", *words: str, **variables: str) -> None:
        """Start it: its own ``place`` of commands, with ``words`` for its script and ``variables``."""
        self.name = name
        script = _HERE / f"serve_{'_'.join(filter(None, (name.replace('-', '_'), place)))}.py"
        self._process = subprocess.Popen(
            [str(install(name, place)), "-I", str(script), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "HOME": home, "MSWEA_SILENT_STARTUP": "1", **variables},
            text=True,
        )

    def run(self, command: str) -> float:
        """Seconds that the peer took, by its own clock."""
        return float(self.ask(command, "took "))

    def ask(self, line: str, mark: str) -> str:
        """The rest of the next line of its output that begins with ``mark``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        for answer in self._process.stdout:
            if answer.startswith(mark):
                return answer.removeprefix(mark)
        raise RuntimeError(f"{self.name} ended")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=20)
