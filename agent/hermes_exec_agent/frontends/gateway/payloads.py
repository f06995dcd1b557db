"""Parts of what platforms send, as JSON: a missing value and a null are the same."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, model_validator


class PayloadPart(BaseModel):
    """A part of a payload; fields that it does not name are left out."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in to_table(cast("object", data)).items() if value is not None}


def to_table(value: object) -> dict[str, Any]:
    """Return a table of JSON; an empty one for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
