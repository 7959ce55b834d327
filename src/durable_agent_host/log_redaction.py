"""Log records of the process without secrets, and without line breaks that others have written.

A logger's filter is not called for its children's records, and handlers come and go: the worker of Azure Functions
installs its own. Every record goes through the record factory, whoever logs it and wherever it goes.
"""

import logging
import re
import traceback
from collections.abc import Callable
from typing import Final

from durable_agent_host.redaction import MASK, mask_secrets

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What ends a line, moves the cursor of a terminal or turns its text around."""
_FUNCTION_KEY: Final = re.compile(r"([?&]code=)[^&\s\"'<>]+")
"""A key of Azure Functions in the query of a URL."""


def redact_log_records() -> None:
    """Mask secrets in every log record of the process; records without secrets are unchanged.

    Control characters are escaped as `repr` does it, in messages and in the texts of exceptions. A traceback has lines.
    """
    if not isinstance(make_record := logging.getLogRecordFactory(), _RedactingFactory):
        logging.setLogRecordFactory(_RedactingFactory(make_record))


class _RedactingFactory:
    def __init__(self, make_record: Callable[..., logging.LogRecord]) -> None:
        self._make_record = make_record

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self._make_record(*args, **kwargs)
        try:
            _redact_message(record)
            _redact_exception(record)
        except Exception:  # noqa: BLE001 - its handler reports a record that cannot be formatted
            return record
        return record


def _redact_message(record: logging.LogRecord) -> None:
    message = record.getMessage()
    redacted_message = _redact(message)
    if redacted_message == message:
        return
    if isinstance(record.args, tuple):  # formatters of access logs read the arguments
        record.args = tuple(_redact(arg) if isinstance(arg, str) else arg for arg in record.args)
        if record.getMessage() == redacted_message:
            return
    record.msg = redacted_message
    record.args = ()


def _redact_exception(record: logging.LogRecord) -> None:
    if not record.exc_info or record.exc_info[1] is None:
        return
    report = traceback.TracebackException.from_exception(record.exc_info[1])
    text = "".join(report.format()).rstrip("\n")
    _escape_messages(report)
    redacted_text = _FUNCTION_KEY.sub(rf"\1{MASK}", mask_secrets("".join(report.format()).rstrip("\n")))
    if redacted_text != text:
        record.exc_text = redacted_text  # formatters take it; `exc_info` still has the error itself


def _escape_messages(report: traceback.TracebackException) -> None:
    """Escape the messages of an exception, its notes, its causes and its parts."""
    report.__dict__["_str"] = _escape_controls(str(report))
    if report.__notes__:
        report.__notes__ = [_escape_controls(str(text)) for text in report.__notes__]
    for other in (report.__cause__, report.__context__, *(report.exceptions or ())):
        if other is not None:
            _escape_messages(other)


def _redact(text: str) -> str:
    return _FUNCTION_KEY.sub(rf"\1{MASK}", _escape_controls(mask_secrets(text)))


def _escape_controls(text: str) -> str:
    return _CONTROLS.sub(lambda control: repr(control[0])[1:-1], text)
