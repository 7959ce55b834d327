"""Distinguishes signals from calls inside an entity's operation.

The extension marks each operation as signal or call, and the SDK (azure-functions-durable 1.7) does not pass this on. A
signal's sender waits for no answer, so a turn sent as a signal may wait where a call must be refused.
"""

from collections.abc import Callable
from typing import Any, cast

from azure.durable_functions import DurableEntityContext
from azure.durable_functions.entity import Entity

_ATTRIBUTE = "_durable_agent_host_is_signal"


def is_signal(context: DurableEntityContext) -> bool:
    """Return whether the current operation is a signal.

    Args:
        context: the entity's.

    Returns:
        False for a call, and when unknown.
    """
    return getattr(context, _ATTRIBUTE, False) is True


def entity_handle(operate: Callable[[DurableEntityContext], None]) -> Callable[[Any], str]:
    """Make the function that the worker calls for an entity, as the SDK's ``Entity.create`` does.

    Args:
        operate: runs one operation.

    Returns:
        The function, which lets operations know whether they are signals.
    """

    def handle(context: Any) -> str:
        known, batch = DurableEntityContext.from_json(getattr(context, "body", None) or context)
        signals = iter([operation.get("isSignal") is True for operation in batch])

        def operate_next(one: DurableEntityContext) -> None:
            setattr(one, _ATTRIBUTE, next(signals, False))
            operate(one)

        return Entity(operate_next).handle(known, batch)

    handle.__name__ = getattr(operate, "__name__", "entity")
    handle.__annotations__ = {}  # the worker refuses annotations on an entity's context
    cast("Any", handle).entity_function = operate
    return handle
