from contextlib import AbstractContextManager
from typing import Any

def transient_settings(config: dict[str, Any]) -> AbstractContextManager[object]: ...
