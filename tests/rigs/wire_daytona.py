"""Daytona's part of the recorded contract: what of the SDK's wheels the backend and the rig stand on.

An upgrade of the SDK that changes any of it shows as a difference between this and what is recorded.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from tests.rigs import daytona_api, daytona_routes, daytona_toolbox

if TYPE_CHECKING:
    from collections.abc import Callable

_SDK = {
    "AsyncDaytona": ("__init__", "create", "get", "list", "close"),
    "AsyncSandbox": (
        "start", "stop", "archive", "delete", "refresh_data", "refresh_activity", "set_labels", "set_autostop_interval",
        "set_auto_delete_interval", "create_snapshot", "wait_for_sandbox_start", "wait_for_sandbox_stop",
        "get_preview_link",
    ),
    "AsyncProcess": ("exec", "create_pty_session", "_open_ws"),
    "AsyncPtyHandle": ("wait", "send_input", "disconnect"),
    "AsyncFileSystem": ("upload_file", "download_file", "download_file_stream", "__init__"),
    "FileSystemApi": ("download_file_without_preload_content",),
}  # fmt: skip
_WHERE = {
    "AsyncDaytona": "daytona._async.daytona",
    "AsyncSandbox": "daytona._async.sandbox",
    "AsyncProcess": "daytona._async.process",
    "AsyncPtyHandle": "daytona.handle.async_pty_handle",
    "AsyncFileSystem": "daytona._async.filesystem",
    "FileSystemApi": "daytona_toolbox_api_client_async",
}
_PARAMETERS = (
    "DaytonaConfig", "CreateSandboxFromImageParams", "CreateSandboxFromSnapshotParams", "Resources", "VolumeMount",
)  # fmt: skip
_REPLIES = (
    (daytona_routes.MAIN, "Sandbox"),
    (daytona_routes.MAIN, "SandboxListItem"),
    (daytona_routes.MAIN, "ListSandboxesResponse"),
    (daytona_routes.MAIN, "PortPreviewUrl"),
    (daytona_routes.TOOLBOX, "ExecuteResponse"),
)
_ENUMS = ("SandboxState", "GpuType")


def daytona_contract() -> dict[str, str]:
    """What there is, by where: the SDK's methods, the routes that are modelled, and the fields on the wire."""
    found: dict[str, str] = {}
    for name, methods in _SDK.items():
        owner = getattr(importlib.import_module(_WHERE[name]), name)
        found.update((f"sdk {name}.{method}", _signature(getattr(owner, method))) for method in methods)
    for name in _PARAMETERS:
        model: Any = getattr(importlib.import_module("daytona"), name)
        fields = model.model_fields if hasattr(model, "model_fields") else model.__dataclass_fields__
        found[f"sdk {name}"] = ", ".join(sorted(fields))
    for service, api in (
        (daytona_routes.MAIN, daytona_api.MainApi),
        (daytona_routes.TOOLBOX, daytona_toolbox.Toolbox),
    ):
        for route in daytona_routes.routes(service):
            if hasattr(api, f"op_{route.name}"):
                found[f"{route.method} {route.path}"] = f"{route.name}({', '.join(sorted(route.query))}) {route.body}"
                if route.body:
                    found.update(_fields(service, route.body))
    for service, name in _REPLIES:
        found.update(_fields(service, name))
    for name in _ENUMS:
        values = [each.value for each in daytona_routes.model(daytona_routes.MAIN, name)]
        found[f"enum {name}"] = ", ".join(sorted(values))
    return found


def _signature(method: Callable[..., object]) -> str:
    """The same on every Python: only some write ``Annotated`` with its module."""
    return str(inspect.signature(method)).replace("typing.", "")


def _fields(service: str, name: str) -> dict[str, str]:
    return {f"{name}.{field}": kind for field, kind in daytona_routes.fields(service, name).items()}
