from typing import ClassVar, Generic, TypeVar

from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace

_ConfigT = TypeVar("_ConfigT", bound=HarnessConfig)

class Harness(Generic[_ConfigT]):
    NEEDS_CONTAINER: ClassVar[bool]
    config: _ConfigT
    async def setup(self, runtime: Runtime) -> None: ...
    def resolve_text_prompt(self, task: TaskData) -> tuple[str | None, str | None]: ...
    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult: ...
