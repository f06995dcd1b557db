import numpy as np
from numpy.typing import NDArray

class E5:
    dim: int
    def __init__(
        self,
        model_path: str | None = ...,
        lib_path: str | None = ...,
        num_threads: int | None = ...,
        sae_path: str | None = ...,
        variant: str = ...,
    ) -> None: ...
    def encode(self, texts: str, is_query: bool = ...) -> NDArray[np.float32]: ...
