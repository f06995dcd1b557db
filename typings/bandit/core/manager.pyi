from typing import IO

from bandit.core.config import BanditConfig

class Issue:
    test_id: str
    text: str
    lineno: int

class BanditManager:
    def __init__(self, config: BanditConfig, agg_type: str, quiet: bool = ..., ignore_nosec: bool = ...) -> None: ...
    def _parse_file(self, fname: str, fdata: IO[bytes], new_files_list: list[str]) -> None: ...
    def get_issue_list(self, sev_level: str = ..., conf_level: str = ...) -> list[Issue]: ...
