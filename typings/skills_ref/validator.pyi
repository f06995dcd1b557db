from pathlib import Path
from typing import Any

def validate_metadata(metadata: dict[str, Any], skill_dir: Path | None = ...) -> list[str]: ...
