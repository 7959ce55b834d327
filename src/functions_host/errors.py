"""Errors of the host itself.

::

    HostError
    └── StartupError      the host cannot start; the message is the sentence that the user reads
"""


class HostError(Exception):
    """Base of the host's errors."""


class StartupError(HostError):
    """The host cannot start; its message says what is wrong and what to do next."""
