"""Modal's wire format, as far as it is modelled: what the descriptors in the SDK's wheel say of it."""

from __future__ import annotations

from typing import Any

from tests.rigs.modal_control import Control
from tests.rigs.modal_sandboxes import Sandboxes
from tests.rigs.modal_wheel import api, router
from tests.rigs.modal_worker import Worker

_SCALARS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 10: "group", 12: "bytes",
    13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip


def modal_contract() -> dict[str, str]:
    """What each modelled method, and each field of the messages that it carries, looks like on the wire."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    wanted = {name for kind in (Control, Sandboxes, Worker) for name in _modelled(kind)}
    for service in (
        api.DESCRIPTOR.services_by_name["ModalClient"],
        router.DESCRIPTOR.services_by_name["TaskCommandRouter"],
    ):
        for method in service.methods:
            if method.name not in wanted:
                continue
            streams = "stream " * method.client_streaming, "stream " * method.server_streaming
            types = method.input_type.full_name, method.output_type.full_name
            found[method.full_name] = f"{streams[0]}{types[0]} -> {streams[1]}{types[1]}"
            for message in (method.input_type, method.output_type):
                _describe(message, found, seen)
    return found


def _modelled(kind: Any) -> list[str]:
    return [name for each in dir(kind) for name in getattr(getattr(kind, each), "serves", ())]


def _describe(message: Any, found: dict[str, str], seen: set[str]) -> None:
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    for field in message.fields:
        inner, values = field.message_type, field.enum_type
        kind = inner.full_name if inner else values.full_name if values else _SCALARS[field.type]
        found[field.full_name] = f"{field.number} {'repeated ' * field.is_repeated}{kind}"
        if inner:
            _describe(inner, found, seen)
        if values:
            found[values.full_name] = " ".join(f"{value.name}={value.number}" for value in values.values)
