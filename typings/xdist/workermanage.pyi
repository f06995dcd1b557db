from collections.abc import Sequence

class WorkerController:
    def send_runtest_some(self, indices: Sequence[int]) -> None: ...
