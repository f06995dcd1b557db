"""What the rig takes from the SDK's wheel: its descriptors and generated messages, which have no types for checkers."""

from importlib import import_module
from typing import Any

api: Any = import_module("modal_proto.api_pb2")
"""The control plane's messages."""
router: Any = import_module("modal_proto.task_command_router_pb2")
"""The workers' messages."""
empty: Any = import_module("google.protobuf.empty_pb2")
message_class: Any = import_module("google.protobuf.message_factory").GetMessageClass
message_to_dict: Any = import_module("google.protobuf.json_format").MessageToDict
details: Any = import_module("modal._utils.grpc_utils").custom_detail_codec
"""How a status tells when to try again."""
