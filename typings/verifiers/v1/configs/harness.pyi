from pydantic import BaseModel

class HarnessConfig(BaseModel):
    id: str
    disabled_tools: list[str] | None
    @property
    def resolved_env(self) -> dict[str, str]: ...
