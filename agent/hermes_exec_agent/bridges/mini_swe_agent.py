"""Targets as environments of mini-swe-agent.

``environment_class`` is ``hermes_exec_agent.bridges.mini_swe_agent.HermesExec``. Each command is a new shell in the
target, as mini-swe-agent expects; at its time limit all of its processes end.
"""

from __future__ import annotations

import weakref
from typing import Any

from pydantic import BaseModel

import hermes_exec.sync
from hermes_exec.errors import HermesError
from hermes_exec_agent.bridges._peers import Peer

with Peer("mini-swe-agent", "2.4.6"):
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge

_MARK = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The first line of an output that submits the rest."""
_OUTPUT = 10 << 20


class HermesExecConfig(BaseModel, extra="forbid"):
    """The settings of an environment."""

    target: str = "local"
    """A target or a profile of ``hermes.toml``."""
    cwd: str = ""
    """By default the working folder of the target."""
    env: dict[str, str] = {}
    timeout: int = 30
    """Seconds of a command."""


class HermesExec:
    """One open target."""

    def __init__(self, **settings: Any) -> None:
        self.config = HermesExecConfig(**settings)
        self._terminal = hermes_exec.sync.open(self.config.target)
        self._finalizer = weakref.finalize(self, self._terminal.close)
        found = self._terminal.run("uname -s; uname -r; uname -v; uname -m", timeout=self.config.timeout)
        names = ("system", "release", "version", "machine")
        self._machine: dict[str, Any] = dict(zip(names, found.stdout_text.splitlines(), strict=False))

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run a command, and return ``output``, ``returncode`` and ``exception_info``.

        Raises:
            Submitted: the output submits the work.
        """
        limit_s = timeout or self.config.timeout
        try:
            done = self._terminal.run(
                ["/bin/sh", "-c", str(action.get("command", ""))], cwd=cwd or self.config.cwd or None,
                env=self.config.env, timeout=limit_s, merge_stderr=True, max_output=_OUTPUT,
            )  # fmt: skip
        except HermesError as error:
            return _fail("", f"An error occurred while executing the command: {error}", type(error).__name__)
        if done.timed_out:
            why = f"An error occurred while executing the command: it was stopped after {limit_s} seconds"
            return _fail(done.stdout_text, why, "TimeoutExpired")
        first, _, rest = done.stdout_text.lstrip().partition("\n")
        if first.strip() == _MARK and done.ok:
            extra = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": extra})
        return {"output": done.stdout_text, "returncode": done.shell_code, "exception_info": ""}

    def cleanup(self) -> None:
        """Close the target, with all that runs there."""
        self._finalizer()

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        """Return the variables of prompts."""
        return recursive_merge(self.config.model_dump(), self._machine, more)

    def serialize(self) -> dict[str, Any]:
        """Return what a trajectory keeps of the environment; the values of variables are left out."""
        shown = self.config.model_dump(mode="json") | {"env": dict.fromkeys(self.config.env, "…")}
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": shown, "environment_type": kind}}}


def _fail(output: str, why: str, kind: str) -> dict[str, Any]:
    return {"output": output, "returncode": -1, "exception_info": why, "extra": {"exception_type": kind}}
