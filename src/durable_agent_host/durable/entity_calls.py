"""Tells a signal from a call inside an operation of an entity.

The extension says of every operation whether it is a signal, and the SDK (azure-functions-durable 1.7) does not pass
it on. A signal's sender waits for no answer, so that a turn that comes as one may wait where a call has to be refused.
"""

from collections.abc import Callable
from typing import Any, cast

from azure.durable_functions import DurableEntityContext
from azure.durable_functions.entity import Entity

_ATTRIBUTE = "_durable_agent_host_is_signal"


def is_signal(context: DurableEntityContext) -> bool:
    """Tell whether the operation at hand is a signal.

    Args:
        context: of the entity.

    Returns:
        False for a call, and when it is not known.
    """
    return getattr(context, _ATTRIBUTE, False) is True


def entity_handle(operate: Callable[[DurableEntityContext], None]) -> Callable[[Any], str]:
    """Make the function that the worker calls for an entity, as the SDK's ``Entity.create`` does.

    Args:
        operate: carries out one operation.

    Returns:
        The function, by which operations know whether they are signals.
    """

    def handle(context: Any) -> str:
        known, batch = DurableEntityContext.from_json(getattr(context, "body", None) or context)
        signals = iter([operation.get("isSignal") is True for operation in batch])

        def operate_next(one: DurableEntityContext) -> None:
            setattr(one, _ATTRIBUTE, next(signals, False))
            operate(one)

        return Entity(operate_next).handle(known, batch)

    handle.__name__ = getattr(operate, "__name__", "entity")
    handle.__annotations__ = {}  # the worker refuses an annotation of an entity's context
    cast("Any", handle).entity_function = operate
    return handle
