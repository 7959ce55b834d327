"""The functions that an app gives: checked at registration, and called without holding up what else the host does.

Plain functions run in threads, and each kind of them has its own: a blocked `notify` delays no `identify`. A function
that exceeds its time is abandoned, because a thread cannot be stopped; it occupies one of the threads of its kind.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from inspect import isawaitable, iscoroutinefunction, signature
from typing import Any, Final, cast

from durable_agent_host.errors import AppFunctionTimeoutError, RegistrationError
from durable_agent_host.redaction import MASK

APP_FUNCTION_SECONDS: Final = 30.0
_AT_ONCE: Final = 32
_LINE_SECONDS: Final = 0.5
_SLOW_SECONDS: Final = 60.0
_LOGGER = logging.getLogger(__name__)


async def call_app_function(kind: str, function: Callable[..., Any], *arguments: Any, name: str = "") -> Any:
    """Call a function of the app; a plain one runs in a thread of its kind.

    Args:
        kind: what it is for the app, such as ``identify``.
        function: plain or async.
        arguments: of the call.
        name: for the log, unless it is the function's own.

    Raises:
        AppFunctionTimeoutError: it takes longer than `APP_FUNCTION_SECONDS`, the wait for a thread included.
    """
    limit = asyncio.timeout(APP_FUNCTION_SECONDS)
    try:
        async with limit:
            if iscoroutinefunction(function):
                return await function(*arguments)
            loop = asyncio.get_running_loop()
            call = partial(copy_context().run, function, *arguments)
            result = await loop.run_in_executor(threads_of(kind), call)
            return await result if isawaitable(result) else result
    except TimeoutError:
        if not limit.expired():
            raise
    name = name or name_of_function(function)
    _LOGGER.error("the app's %s, %s, took longer than %g s", kind, name, APP_FUNCTION_SECONDS)
    raise AppFunctionTimeoutError(f"the app's function for {kind!r} took longer than {APP_FUNCTION_SECONDS:g} s")


def name_of_function(function: Callable[..., Any]) -> str:
    """Return a function's module and name."""
    target: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{target.__module__}.{target.__qualname__}"


@cache
def threads_of(kind: str) -> ThreadPoolExecutor:
    """Return the threads of one kind of functions."""
    return ThreadPoolExecutor(_AT_ONCE, f"app-{kind}")


class LineRedaction:
    """A function of the app for the texts of errors and log lines, which are redacted where they are written.

    Whoever writes waits for it, as event loops do: not for long, and after a text that took longer, not for a while.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._slow_until = 0.0

    def __call__(self, text: str) -> str:
        """Redact a text, or mask all of it."""
        if time.monotonic() >= self._slow_until:
            try:
                return threads_of("redact-line").submit(self._redact, text).result(_LINE_SECONDS)
            except RuntimeError:  # the process ends, and its threads have ended
                return self._redact(text)
            except TimeoutError:
                self._slow_until = time.monotonic() + _SLOW_SECONDS
        return f"{MASK} (the app's redact takes longer than {_LINE_SECONDS:g} s for the text of an error or log line)"


def check_hook(name: str, hook: Callable[..., Any] | None, *argument_names: str, is_plain: bool = False) -> None:
    """Refuse a function that cannot be called as the host calls it.

    Raises:
        RegistrationError: it is not a function, takes other arguments, or is ``async`` where that is refused.
    """
    if hook is None:
        return
    call = f"{name}({', '.join(argument_names)})"
    if not callable(hook):
        raise RegistrationError(f"{name} is {type(hook).__name__}: give a function that is called as {call}")
    if is_plain and (iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None))):  # noqa: B004 - an object's method
        raise RegistrationError(f"{name} is async, and its answer is needed at once: give a plain function")
    try:
        hook_signature = signature(hook)
    except (TypeError, ValueError):  # a C function without a signature
        return
    try:
        hook_signature.bind(*argument_names)
    except TypeError as error:
        raise RegistrationError(f"{name} cannot be called as {call}: {error}") from None


def as_list(name: str, values: Any) -> list[Any]:
    """Return the values of an argument that takes several; none for None.

    Raises:
        RegistrationError: it is something else than a list, as one of its values.
    """
    if values is None:
        return []
    if isinstance(values, str | Mapping) or not hasattr(values, "__iter__"):
        raise RegistrationError(f"{name} is a {type(cast('Any', values)).__name__}: give a list, {name}=[…]")
    return [*cast("Iterable[Any]", values)]
