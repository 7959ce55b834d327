"""Log lines of the process without secrets.

A filter of a logger is not asked for what its children log, and handlers come and go: the worker of Azure Functions
sets its own. The factory of log records is the one place that every line passes, whoever logs it and wherever it goes.
"""

import logging
import traceback
from collections.abc import Callable

from durable_agent_host.redaction import without_secrets


def keep_secrets_out_of_logs() -> None:
    """Let every log record of the process be made without secrets; what has none is as it was.

    Guarantee: idempotent.
    """
    if not isinstance(made_before := logging.getLogRecordFactory(), _WithoutSecrets):
        logging.setLogRecordFactory(_WithoutSecrets(made_before))


class _WithoutSecrets:
    """Makes records as the factory before it, and takes the secrets out of their texts."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        try:
            _clean_message(record)
            _clean_exception(record)
        except Exception:  # noqa: BLE001 - a line that cannot be formatted is for its handler to tell
            return record
        return record


def _clean_message(record: logging.LogRecord) -> None:
    message = record.getMessage()
    if (clean := without_secrets(message)) == message:
        return
    if isinstance(record.args, tuple):  # formatters may read them
        record.args = tuple(without_secrets(one) if isinstance(one, str) else one for one in record.args)
        if without_secrets(again := record.getMessage()) == again:
            return
    record.msg, record.args = clean, ()


def _clean_exception(record: logging.LogRecord) -> None:
    if not record.exc_info or record.exc_info[1] is None:
        return
    text = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
    if (clean := without_secrets(text)) != text:
        record.exc_text = clean  # formatters take it; who asks the record for the error itself still gets that
