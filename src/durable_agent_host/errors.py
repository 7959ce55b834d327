"""Every error that this package raises, in one tree.

::

    AgentFrameworkException
    └── DurableAgentHostError
        ├── SettingError                   a setting is missing or invalid; names it and says what to set
        ├── RegistrationError              two agents of one name, or an agent without a usable name
        ├── RequestError                   the caller can fix the request
        │   ├── NotFoundError              no such agent, session or turn
        │   ├── ForbiddenError             the caller may not do this
        │   ├── TooManyRequestsError       the caller exceeds a limit; says when to retry
        │   ├── RequestTooLargeError       the body exceeds the limit
        │   ├── UnsupportedTypeError       the body has a content type that is not read
        │   ├── IdempotencyKeyReusedError  the key was used before, with another body
        │   └── HistoryElsewhereError      the conversation is kept by a history provider of the app
        ├── StateError                     a stored session cannot be used as it is; it is left untouched
        │   ├── UnknownSchemaVersionError  written by a newer or unknown program
        │   ├── CorruptStateError          not a document that this program or upstream writes
        │   └── EncryptionKeyError         encrypted with a key that the app does not have
        ├── LogError                       a store does not answer, or holds something else
        │   ├── DiskFullError              the disk of the stores is full; says what to do
        │   ├── LogUnavailableError        it cannot be written now, and nothing was begun without it
        │   └── FencedError                the writer has been overtaken by a later attempt of the same turn
        ├── NotificationError              a notification of the app's ``notify`` was not delivered
        ├── AgentClientError               the host refused a request of `AgentClient`; has status, problem and turn
        │   └── HostUnreachableError       no host answers, or the connection is lost
        └── TurnError                      the turn ended without an answer
            ├── TurnRejectedError          the session was busy and the policy was to reject
            ├── TurnCancelledError         somebody cancelled it, or another turn interrupted it
            ├── TurnTimedOutError          still running when the wait was over
            ├── AnswerGoneError            it has ended, and its answer is no longer kept
            ├── TurnLimitError             the turn exceeds a limit of the host; names its setting
            ├── ProcessDiedError           the process died at it again and again
            ├── InvalidAnswerError         the answer does not match the requested response format
            ├── HistoryError               a history provider of the app does not answer
            ├── BudgetExceededError        a budget is used up; the next call was not made
            ├── RedactionError             the app's function that redacts contents failed
            └── ProviderError              the model service failed; says whether a retry can help
                ├── ContextOverflowError   the request is longer than the model's context window
                └── RequestBlockedError    a policy of the service blocks the request
"""

import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from agent_framework.exceptions import AgentFrameworkException

_MOST_CHARACTERS: Final = 20_000
"""Longest message: some services answer with whole pages."""

FREE_SPACE_HINT: Final = (
    "delete sessions that are not needed, or make room on the disk. What is stored can be read and deleted meanwhile"
)
"""What to do when a disk is full."""

HOST_FAILED: Final = "the host failed to answer; the log has the reason. Nothing is lost: try again"
"""The message for callers when an error is not ours."""


class DurableAgentHostError(AgentFrameworkException):
    """Root of the tree; its message says what to do next.

    It may quote what others wrote: whoever shows or stores it masks secrets (`redaction.mask_secrets`).
    """

    def __init__(self, message: str) -> None:
        self.message = message[:_MOST_CHARACTERS]
        super().__init__(self.message, log_level=None)


class SettingError(DurableAgentHostError):
    """A setting is missing or invalid; the message names it and says what to set.

    Attributes:
        needs_traceback: False, because the message says all; read by the embedded host.
    """

    needs_traceback: Final = False


class RegistrationError(DurableAgentHostError):
    """An agent, a workflow or an argument of the app cannot be used; the message says what to write.

    Attributes:
        needs_traceback: as in `SettingError`.
    """

    needs_traceback: Final = False


class RequestError(DurableAgentHostError):
    """The request cannot be carried out, and the caller can correct it."""


class AppFunctionTimeoutError(DurableAgentHostError):
    """A function of the app takes too long."""


class NotFoundError(RequestError):
    """There is no such agent, session or turn."""


class ForbiddenError(RequestError):
    """The caller may not do this; raised by the gate, by the app's functions for it, and for answers."""


class TooManyRequestsError(RequestError):
    """The caller exceeds a limit.

    Attributes:
        retry_after_seconds: when to retry.
    """

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class BodiesTooLargeError(TooManyRequestsError):
    """The request bodies that one caller sends at once are larger together than the host accepts."""


class RequestTooLargeError(RequestError):
    """The request body is larger than the host accepts."""


class BodyStalledError(RequestError):
    """The request body stopped arriving."""


class UnsupportedTypeError(RequestError):
    """The request body has a content type that the route does not read."""


class IdempotencyKeyReusedError(RequestError):
    """The idempotency key was used before, with another body."""


class HistoryElsewhereError(RequestError):
    """The conversation is kept by a history provider of the app, so the host cannot do this; says how to do it."""


class StateError(DurableAgentHostError):
    """A stored session cannot be used as it is. It is left untouched."""


class UnknownSchemaVersionError(StateError):
    """The session was written by a newer or unknown program."""

    def __init__(self, version: object) -> None:
        super().__init__(
            f"the stored session has schema version {version!r}, and this program reads 1.0 to 1.2: "
            "upgrade durable-agent-host, or start another session; nothing was changed"
        )
        self.version = version


class CorruptStateError(StateError):
    """The session is not a document that this program or upstream writes."""


class EncryptionKeyError(StateError):
    """Stored data is encrypted with a key that the app does not have, or cannot use now."""


class LogError(DurableAgentHostError):
    """A store of turn logs or blobs cannot be read or written: it does not answer, or holds something else."""


class DiskFullError(LogError):
    """The disk of the stores is full, so nothing new can be stored."""


class LogUnavailableError(LogError):
    """The turn log cannot be written now, so nothing was begun; retry later."""


class FencedError(LogError):
    """A later attempt of the same turn writes the log now; this one must stop. Nothing was appended."""


class AgentClientError(DurableAgentHostError):
    """A host has refused a request of an `AgentClient`, or the turn has no answer.

    Attributes:
        status: of the HTTP answer; 0 without one.
        problem: the answer's body, if it is a problem; it names the turn if there is one.
        retry_after: when to ask again, as the answer says; None where it does not.
        idempotency_key: of the run or stream; the same call with it is the same turn.
    """

    idempotency_key: str | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        problem: Mapping[str, Any] | None = None,
        retry_after: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.problem = problem or {}

    @property
    def turn_url(self) -> str | None:
        """The URL of the turn that has begun; None when there is none."""
        return self.problem.get("turn_url")


class HostUnreachableError(AgentClientError):
    """No host answers an `AgentClient`, it asks to wait, or the connection is lost; turns continue without it."""


class TurnError(DurableAgentHostError):
    """The turn ended without an answer."""


class TurnRejectedError(TurnError):
    """The session was busy with another turn, and the policy was to reject.

    Attributes:
        running_turn_id: the turn that holds the session, or None when it is not known.
    """

    def __init__(self, message: str, *, running_turn_id: str | None = None) -> None:
        super().__init__(message)
        self.running_turn_id = running_turn_id


class TurnCancelledError(TurnError):
    """The turn was cancelled or interrupted by another; what it had produced is part of the conversation."""


class AnswerGoneError(TurnError):
    """The turn has ended, and its answer is no longer kept: the session was reset and the turn's record purged."""


class TurnTimedOutError(TurnError):
    """The turn was still running when the wait ended; it continues."""


class TurnLimitError(TurnError):
    """The turn exceeds a limit on what its models send or ask for."""


class ProcessDiedError(TurnError):
    """The process has died several times in a row while the turn ran, and the turn had finished nothing between."""


class HistoryError(TurnError):
    """A history provider of the app does not answer."""


class InvalidAnswerError(TurnError):
    """The model's answer does not match the requested response format."""


class BudgetExceededError(TurnError):
    """A budget of the turn or its session is used up; the next call was not made."""


class RedactionError(TurnError):
    """The app's function that redacts contents failed; nothing of the turn was stored.

    Its message contains none of the conversation.
    """


class NotificationError(DurableAgentHostError):
    """A notification was not delivered.

    Attributes:
        retryable: whether another attempt can succeed; decided where the error is born.
    """

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class ProviderError(TurnError):
    """The model service did not answer.

    Attributes:
        retryable: whether the same call can succeed later; decided where the error is born.
        retry_after_seconds: as requested by the service, or None.
        is_client_rejected: whether the service refuses the key, the account or the model, and not the request.
        usage: the tokens that the service has counted all the same, by the framework's names.
    """

    usage: Mapping[str, Any] | None = None

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        retry_after_seconds: float | None = None,
        is_client_rejected: bool = False,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.is_client_rejected = is_client_rejected


class ContextOverflowError(ProviderError):
    """The request is longer than the model's context window.

    Attributes:
        share: of the messages' tokens that probably fits, between 0 and 1.
    """

    def __init__(self, message: str, *, share: float) -> None:
        super().__init__(message, retryable=False)
        self.share = share


class RequestBlockedError(ProviderError):
    """A policy of the model's service blocks the request; the same request is blocked again.

    Attributes:
        category: of the policy, in the service's words; empty when it names none.
    """

    def __init__(self, reason: str, category: str = "") -> None:
        policy = f"its content policy ({category})" if category else "its content policy"
        super().__init__(
            f"the model's service has blocked the request by {policy}: {reason.rstrip('. ')} - say it in another way, "
            "or change the filter of the service",
            retryable=False,
        )
        self.category = category


def log_reason(error: BaseException) -> str:
    """Describe in one log line why something failed, without words from users, models, tools and services.

    For errors that quote others, returns the part before the quotation; for errors that are not
    ours, the type and the line of the program.

    Args:
        error: the error raised.

    Returns:
        Its type and reason.
    """
    name = type(error).__name__
    message = " ".join(str(error).split())
    if isinstance(error, ProviderError | InvalidAnswerError):
        return f"{name}: {message.partition(': ')[0]}"  # a colon without a space is part of an address
    if isinstance(error, DurableAgentHostError):
        return f"{name}: {message[:300]}"
    frames = traceback.extract_tb(error.__traceback__)
    file = _name_of(frames[-1].filename) if frames else ""
    return f"{name} at {file}:{frames[-1].lineno} in {frames[-1].name}" if frames else name


def error_name(error: BaseException) -> str:
    """Return an error's name in one word, for callers who may not see more: the driver's code or type of error.

    Returns:
        Such as ``SQLITE_FULL``, ``403`` or ``ConnectionError``.
    """
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    status: Any = getattr(cause, "status_code", None)
    kind = "StoreError" if type(cause) is Exception else type(cause).__name__  # the durable SDK has no type for it
    return str(getattr(cause, "sqlite_errorname", "") or status or kind)


def _name_of(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def strip_error_text(error: BaseException, text: str = "", *, seen: tuple[BaseException, ...] = ()) -> BaseException:
    """Return a stand-in for an error that a log record can have as its ``exc_info``: the same type and traceback.

    Handlers read the error of a record itself, and what it and its causes say may be words of users and services.

    Args:
        error: the error raised.
        text: what the stand-in says.
        seen: the errors that it is a cause of.
    """
    replacement = type(type(error).__name__, (Exception,), {"__module__": type(error).__module__})(text)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and cause not in seen:
        replacement.__cause__ = strip_error_text(cause, seen=(*seen, error))
    return replacement.with_traceback(_app_traceback(error.__traceback__) or error.__traceback__)


def _app_traceback(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback with the frames of the app alone; None when it has none."""
    app_frames: list[TracebackType] = []
    while trace is not None:
        if is_app_file(trace.tb_frame.f_code.co_filename):
            app_frames.append(trace)
        trace = trace.tb_next
    app_trace = None
    for frame in reversed(app_frames):
        app_trace = TracebackType(app_trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return app_trace


def locate_error(error: BaseException) -> dict[str, Any]:
    """Return the type of an error, and the file, line and function of the app that it came from.

    Where none of the app's code was running, the place that raised it. Where several functions of the app were, also
    the ``frames`` of all of them, the innermost last.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return {"type": type(error).__name__}
    locations = [
        {"file": _name_of(frame.filename), "line": frame.lineno, "function": frame.name}
        for frame in [frame for frame in frames if is_app_file(frame.filename)] or frames[-1:]
    ]
    return {"type": type(error).__name__, **locations[-1]} | (
        {"frames": locations[-_MAX_FRAMES:]} if locations[1:] else {}
    )


def is_app_file(path: str) -> bool:
    """Return whether a file of code is the app's: neither of the host, nor of an installed package, nor of Python."""
    return not path.startswith(_LIBRARIES) and _INSTALLED not in path


_MAX_FRAMES: Final = 20
_INSTALLED: Final = "site-packages"
_LIBRARIES: Final = (*(path.removesuffix(_name_of(path)) for path in (__file__, traceback.__file__)), "<")
