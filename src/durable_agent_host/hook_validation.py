"""Check an app's arguments at its start, not at the first request that needs them."""

from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction, signature
from typing import Any, cast

from durable_agent_host.errors import RegistrationError


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
