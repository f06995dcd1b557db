"""The program's log: one line an event, for people or for programs, without secrets.

Modules log through ``logging.getLogger("hermes_exec.…")`` and pass fields as ``extra={"target": …}``.
Nothing is shown until ``setup_logging`` is called, which a library must leave to its program.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Literal

from hermes_exec.observe.redact import Redactor
from hermes_exec.observe.token_shapes import redact_tokens

if TYPE_CHECKING:
    from typing import TextIO

_TIME = "%Y-%m-%dT%H:%M:%S"
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}
_NOTHING = Redactor()


def setup_logging(
    level: str = "warning",
    format: Literal["text", "json"] = "text",
    *,
    redactor: Redactor = _NOTHING,
    stream: TextIO | None = None,
) -> None:
    """Show hermes_exec's log messages from ``level`` on, on standard error. A second call replaces the first."""
    logger = logging.getLogger("hermes_exec")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(format, redactor))
    for old in [each for each in logger.handlers if isinstance(each.formatter, LineFormatter)]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


class LineFormatter(logging.Formatter):
    """A formatter that writes each event as one line: the message, then the fields.

    Secrets, and what has the shape of a messenger's token, are redacted in each part before it is escaped, and once
    more in the finished line, so that none remains in an argument, a field or a traceback. A line break in any part
    is escaped, so that no text can forge a line.
    """

    def __init__(self, format: Literal["text", "json"], redactor: Redactor = _NOTHING) -> None:
        super().__init__()
        self._json = format == "json"
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as one line."""
        facts = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        head = {
            "time": f"{time.strftime(_TIME, time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._clean(record.getMessage()),
        }
        if self._json:
            facts = {key: self._clean(value) if isinstance(value, str) else value for key, value in facts.items()}
            return self._clean(json.dumps({**head, **facts, **head}, default=self._clean))
        words = [f"{head['time']} {head['level']} {head['logger']}: {_plain(head['message'])}"]
        words += [f"{key}={_word(self._clean(value))}" for key, value in facts.items()]
        return self._clean(" ".join(words))

    def _clean(self, value: object) -> str:
        return redact_tokens(self._redactor.redact(str(value)))


def _plain(text: str) -> str:
    return text if text.isprintable() else _escape(text)[1:-1]


def _word(text: str) -> str:
    bare = text.isprintable() and text and not any(mark in text for mark in ' "=')
    return text if bare else _escape(text)


def _escape(text: str) -> str:
    # Printable characters such as `ü` stay readable; others, such as a bidi mark, are escaped.
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if quoted.isprintable() else json.dumps(text)
