from pathlib import Path
from typing import Any

class BaseAgent:
    logs_dir: Path
    model_name: str | None
    session_id: str | None
    mcp_servers: list[Any]
    def __init__(self, logs_dir: Path, *args: Any, **options: Any) -> None: ...
