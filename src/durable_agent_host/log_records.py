"""Log lines of the process without secrets, and without line breaks that others have written.

A logger's filter is not called for its children's records, and handlers come and go: the worker of Azure Functions
installs its own. Every record goes through the record factory, whoever logs it and wherever it goes.
"""

import logging
import re
import traceback
from collections.abc import Callable
from typing import Final

from durable_agent_host.redaction import without_secrets

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What ends a line, moves the cursor of a terminal or turns its text around."""


def keep_secrets_out_of_logs() -> None:
    """Remove secrets from every log record of the process; records without secrets are unchanged.

    Control characters are escaped as `repr` does it, in messages and in what exceptions say. A traceback has lines.

    Guarantee: idempotent.
    """
    if not isinstance(made_before := logging.getLogRecordFactory(), _WithoutSecrets):
        logging.setLogRecordFactory(_WithoutSecrets(made_before))


class _WithoutSecrets:
    """Makes records with the previous factory, and removes secrets from their texts."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        try:
            _clean_message(record)
            _clean_exception(record)
        except Exception:  # noqa: BLE001 - its handler reports a line that cannot be formatted
            return record
        return record


def _clean_message(record: logging.LogRecord) -> None:
    message = record.getMessage()
    if (clean := _clean(message)) == message:
        return
    if isinstance(record.args, tuple):  # formatters may read them
        record.args = tuple(_clean(one) if isinstance(one, str) else one for one in record.args)
        if _clean(again := record.getMessage()) == again:
            return
    record.msg, record.args = clean, ()


def _clean_exception(record: logging.LogRecord) -> None:
    if not record.exc_info or record.exc_info[1] is None:
        return
    told = traceback.TracebackException.from_exception(record.exc_info[1])
    text = "".join(told.format()).rstrip("\n")
    _escape_words(told)
    if (clean := without_secrets("".join(told.format()).rstrip("\n"))) != text:
        record.exc_text = clean  # formatters take it; who asks the record for the error itself still gets that


def _escape_words(told: traceback.TracebackException) -> None:
    """Escape what an exception, its causes and its parts say; secrets go first, whose forms know of line breaks."""
    told.__dict__["_str"] = _clean(str(told))
    if told.__notes__:
        told.__notes__ = [_clean(str(note)) for note in told.__notes__]
    for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if other is not None:
            _escape_words(other)


def _clean(text: str) -> str:
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], without_secrets(text))
