from collections import OrderedDict

import pytest
from xdist.workermanage import WorkerController

class LoadScopeScheduling:
    workqueue: OrderedDict[str, dict[str, bool]]
    assigned_work: dict[WorkerController, dict[str, dict[str, bool]]]
    registered_collections: dict[WorkerController, list[str]]
    def __init__(self, config: pytest.Config, log: object = ...) -> None: ...
    def _assign_work_unit(self, node: WorkerController) -> None: ...
    def _split_scope(self, nodeid: str) -> str: ...
