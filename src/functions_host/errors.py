"""Errors of the host itself.

::

    HostError
    └── StartupError      the host cannot start; the message is the sentence that the user reads
"""


class HostError(Exception):
    """Base of the host's errors."""


class StartupError(HostError):
    """The host cannot start; its message says what is wrong and what to do next.

    Args:
        message: one sentence.
        trace: the traceback of the app's own code, when that has failed.

    Attributes:
        trace: the same.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace
