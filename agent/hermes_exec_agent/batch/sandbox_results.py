"""What a shard in a sandbox sends, which was in the reach of agents: the checks of its archive, results and events."""

from __future__ import annotations

import json
import math
import shutil
import tarfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.canonical_json import refuse_constant
from hermes_exec_agent.batch.ledger import Amounts
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONGEST = 4 << 20
"""Bytes of a result, or of a line of a log."""
LARGEST = 2 << 30
"""Bytes of all files of an archive."""
_LINE = 300
_MOST = 1 << 53

Count = Annotated[int, Field(ge=0, le=_MOST)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Usage(_Sent):
    prompt: Count
    cached: Count
    completion: Count
    reasoning: Count
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    estimated: bool


class _Result(_Sent):
    """A result, as `attempt.Attempt.to_record` and the shard write it."""

    key: str
    attempt: Count
    task: str
    target: str
    model: str
    sample: Count
    state: Literal["graded", "ungraded", "failed", "interrupted", "capped"]
    failure: Literal["infrastructure", "model", "agent", "check"] | None
    reason: str
    reward: Number | None
    check: dict[str, Any] | None
    outcome: Annotated[str, Field(max_length=64)]
    steps: Count
    calls: Count
    conversation: str
    usage: _Usage | None
    began: Number | None
    seconds: Number | None
    """Negative if the clock of the sandbox was set back meanwhile."""
    shard: str
    epoch: Count
    final: bool

    @model_validator(mode="after")
    def _has_reward_if_graded(self) -> _Result:
        if (self.state == "graded") != (self.reward is not None):
            raise ValueError("a reward without a grade, or a grade without a reward")
        if self.final and self.state in ("interrupted", "capped"):
            raise ValueError("a stopped attempt is not final")
        return self

    @model_validator(mode="after")
    def _has_own_conversations(self) -> _Result:
        steps: object = (self.check or {}).get("steps", [])
        if not isinstance(steps, list):
            raise ValueError("steps are not a list")  # noqa: TRY004  pydantic reports it
        found: list[object] = [self.conversation]
        for each in cast("list[object]", steps):
            if not isinstance(each, dict):
                raise ValueError("a step is not a table")  # noqa: TRY004  likewise
            found.append(cast("dict[str, object]", each).get("conversation"))
        own = f"{self.key}.{self.attempt}"
        if not all(each in ("", own) or str(each).startswith(f"{own}.") for each in found):
            raise ValueError("a conversation of another attempt")
        return self


def read_result(path: Path, expected: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result in a file; None if there is none that has the form of one, and the ``expected`` values."""
    try:
        if path.is_symlink() or path.stat().st_size > LONGEST:
            return None
        found = parse_object(path.read_bytes())
        if found is None:
            return None
        _Result.model_validate(found)
    except (OSError, ValidationError, RecursionError, OverflowError):
        return None
    if any(found[name] != value for name, value in expected.items()):
        return None
    return found | {name: flatten(found[name], _LINE) for name in ("reason", "outcome")}


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object with finite numbers; None if it is none."""
    try:
        found = json.loads(data, parse_constant=refuse_constant) if len(data) <= LONGEST else None
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a log that others may read, as far as they have the form of one.

    Targets are left out, as other processes end what they name; so is a full disk, which is that of the sandbox.
    """
    if path.is_symlink() or not path.is_file():
        return
    with path.open("rb") as file:
        while line := file.readline(LONGEST + 1):
            event = parse_object(line)
            if event is None or not isinstance(at := event.get("at", 0), int | float) or not math.isfinite(at):
                continue
            match event.get("event"):
                case "reserved" | "settled" | "returned" as kind:
                    if (amounts := _read_amounts(event)) is not None:
                        yield {"event": kind, "at": at, **amounts}
                case "running" | "ended_attempt" as kind:
                    if isinstance(event.get("key"), str) and type(event.get("attempt")) is int:
                        yield {"event": kind, "at": at, "key": event["key"], "attempt": event["attempt"]}
                case "ended":
                    yield {"event": "ended", "at": at}
                case _:
                    pass


def _read_amounts(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the amounts of an event, of which none is negative; None if it has others."""
    values = {name: event.get(name, 0) for name in Amounts.__slots__}
    if not all(type(each) is int and 0 <= each <= _MOST * _MOST for each in values.values()):
        return None
    if event["event"] != "settled":
        return values
    reserved = event.get("reserved")
    before = _read_amounts({**reserved, "event": "reserved"}) if isinstance(reserved, dict) else None
    return None if before is None else {**values, "reserved": before}


def unpack(archive: Path, folder: Path, is_wanted: Callable[[str], bool]) -> None:
    """Unpack the files of an archive whose names are wanted into a new folder; links and devices are left out.

    Raises:
        HermesError: it is damaged, or its files are too large.
        OSError: they cannot be written.
    """
    shutil.rmtree(folder, ignore_errors=True)
    make_private_folder(folder)
    left = LARGEST
    try:
        with tarfile.open(archive, "r:") as packed:
            for member in packed:
                if not member.isreg() or ".." in PurePosixPath(member.name).parts or not is_wanted(member.name):
                    continue
                left -= member.size
                if left < 0:
                    raise HermesError(f"the files of a sandbox have more than {LARGEST >> 20} MiB")
                path = folder / member.name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                source = packed.extractfile(member)
                if source is not None:
                    with path.open("wb") as target:
                        shutil.copyfileobj(source, target)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise HermesError(f"the archive of a sandbox is damaged: {to_printable(str(error))[:_LINE]}") from error
