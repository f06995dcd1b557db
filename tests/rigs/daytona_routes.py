"""What Daytona's services offer, as the generated clients inside the SDK's wheels say it: routes, queries, bodies.

The rig's server is served from this table, so a request that the SDK can make and the rig does not know is noticed.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MAIN, TOOLBOX = "daytona_api_client_async", "daytona_toolbox_api_client_async"
_SERIALIZER = re.compile(r"\n    def _(\w+)_serialize\(\n(.*?)(?=\n    @|\n    async def |\Z)", re.DOTALL)
_QUERY = re.compile(r"_query_params\.append\(\s*\(\s*'(\w+)'")
_SNAKE = re.compile(r"([A-Z])")
_BODY = re.compile(r"_body_params = (\w+)\n")


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of a service."""

    service: str
    name: str
    method: str
    path: str
    query: frozenset[str]
    body: str
    """The model of the request's body; empty where it has none."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """What its paths look like, with a group for each part that varies."""
        return re.compile(re.sub(r"\{(\w+)\}", lambda found: f"(?P<{found[1]}>[^/]+)", self.path))


@cache
def routes(service: str) -> tuple[Route, ...]:
    """All operations of a service, those with the fewest varying parts first."""
    found: list[Route] = []
    package = importlib.util.find_spec(service)
    assert package is not None
    assert package.origin is not None
    for file in sorted(Path(package.origin).parent.glob("api/*_api.py")):
        source = file.read_text(encoding="utf-8")
        for name, text in _SERIALIZER.findall(source):
            method, path = (re.search(rf"{key}='([^']+)'", text) for key in ("method", "resource_path"))
            assert method is not None
            assert path is not None
            model = ""
            call = source[source.index(f"async def {name}(") :]
            for variable in _BODY.findall(text):
                typed = re.search(rf"\n        {variable}: (?:Annotated\[)?(?:Optional\[)?(\w+)", call)
                model = typed[1] if typed else ""
            found.append(Route(service, name, method[1], path[1], frozenset(_QUERY.findall(text)), model))
    return tuple(sorted(found, key=lambda route: (route.path.count("{"), route.path, route.method)))


def find(service: str, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """The operation that a request is for, and the varying parts of its path."""
    for route in routes(service):
        if route.method == method and (match := route.pattern.fullmatch(path)):
            return route, {_SNAKE.sub(r"_\1", key).lower(): value for key, value in match.groupdict().items()}
    return None


def model(service: str, name: str) -> Any:
    """A model of the generated client."""
    return getattr(importlib.import_module(service), name)


def fields(service: str, name: str) -> dict[str, str]:
    """The fields of a model as they are on the wire, and their types."""
    return {
        field.serialization_alias or key: re.sub(r"\b[\w.]+\.(\w+)", r"\1", str(field.annotation))
        for key, field in model(service, name).model_fields.items()
        if key != "additional_properties"
    }
