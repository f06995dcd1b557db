from typing import Any

class Submitted(Exception):
    def __init__(self, *messages: dict[str, Any]) -> None: ...
