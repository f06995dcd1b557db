"""Our agent as a harness of verifiers, so that a trainer reads its tokens through verifiers' own interception.

The harness is called ``hermes-exec-harness``. The program ``hermes-exec`` has to be installed in the runtime, in an
environment of its own.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from hermes_exec_agent.bridges._peers import Peer

with Peer("verifiers", "0.4.0"):
    from verifiers.v1.configs.harness import HarnessConfig
    from verifiers.v1.errors import HarnessError
    from verifiers.v1.harness import Harness

if TYPE_CHECKING:
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.runtimes import ProgramResult, Runtime
    from verifiers.v1.task import TaskData
    from verifiers.v1.trace import Trace

_RUN = """
umask 077
state=$(mktemp -d /tmp/hermes-harness.XXXXXXXX) || exit 1
trap 'rm -rf -- "$state" "$prompt"' EXIT
prompt=$1 program=$2; shift 2
export XDG_CONFIG_HOME="$state/config" XDG_STATE_HOME="$state/state"
export XDG_DATA_HOME="$state/data" XDG_CACHE_HOME="$state/cache"
"$program" chat -q - --on local --approve allow --guest "$@" < "$prompt"
"""


class HermesExecHarnessConfig(HarnessConfig):
    """The settings of the harness."""

    program: str = "hermes-exec"
    """The path of the program in the runtime."""
    replies: int | None = None
    """The most replies of the model."""


class HermesExecHarness(Harness[HermesExecHarnessConfig]):
    """Runs ``hermes-exec chat`` once, with the folder of the rollout as its working folder."""

    NEEDS_CONTAINER = False
    """Settings, conversations and memory are in a folder of the rollout, so that nothing of the host is read."""

    async def setup(self, runtime: Runtime) -> None:
        """Check that the program is there; see `Harness.setup`."""
        done = await runtime.run([self.config.program, "version"], self.config.resolved_env)
        if done.exit_code:
            raise HarnessError(f"{self.config.program}: it does not run in the runtime: {done.stderr.strip()[-300:]}")

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,  # noqa: ARG002  the form of verifiers
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        """Ask the agent, whose requests go to ``endpoint``; see `Harness.launch`."""
        if mcp_urls or self.config.disabled_tools:
            raise HarnessError("servers of tools and disabled_tools are not supported by this harness")
        _, prompt = self.resolve_text_prompt(data)
        path = f"/tmp/hermes-prompt-{uuid.uuid4().hex}"  # noqa: S108  its name cannot be guessed
        await runtime.write(path, (prompt or "").encode())
        env = {
            **self.config.resolved_env,
            "LLM_PROVIDER": "custom",
            "LLM_BASE_URL": endpoint,
            "OPENAI_API_KEY": secret,
            "DEFAULT_MODEL": ctx.model,
        }
        more = ["--budget", str(self.config.replies)] if self.config.replies is not None else []
        return await runtime.run_program(["sh", "-c", _RUN, "sh", path, self.config.program, *more], env)
