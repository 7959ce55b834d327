"""Parses a stream's events by their type, which saves a third of the CPU time of a streamed response.

The SDK (openai 3.54) checks each event against all of the fifty and more kinds of events before it takes the one whose
``type`` matches: 0.1 ms for a delta, 0.4 ms for a whole response. The ``type`` identifies the kind, so here an event is
checked only against its own kind. An event that fails is constructed as that kind without validation, as the SDK
finally does. The client and the SDK's modules are not changed.
"""

from functools import cache
from typing import Any, cast, get_args

from durable_agent_host.agent.overriding import copy_with


def with_fast_event_parsing(client: Any) -> Any:
    """Copy a client of the SDK so that it parses the events of a streamed response by their type.

    Guarantee: pure; events are equal to those of the client.

    Args:
        client: an `openai.AsyncOpenAI` or one of its subclasses; anything else is returned unchanged.

    Returns:
        A copy that shares the connections.
    """
    from openai import AsyncOpenAI  # noqa: PLC0415 - one SDK per file, loaded when used

    if not isinstance(client, AsyncOpenAI) or isinstance(client, _FastEventParsingMixin):
        return client
    return copy_with(client.with_options(), _FastEventParsingMixin)


class _FastEventParsingMixin:
    """The override; precedes the client's own class in the method resolution order."""

    def _process_response_data(self, *, data: Any, cast_to: Any, response: Any) -> Any:
        kinds, stream_type = _kinds()
        if cast_to is stream_type and type(data) is dict:
            kind = kinds.get(cast("dict[str, Any]", data).get("type"))
            if kind is not None:
                try:
                    return kind.model_validate(data)
                except ValueError:  # of pydantic
                    return kind.construct(**data)
        client: Any = super()
        return client._process_response_data(data=data, cast_to=cast_to, response=response)  # noqa: SLF001 - overridden


@cache
def _kinds() -> tuple[dict[Any, type[Any]], Any]:
    """Return the kinds of events by type, where the type is unique, and the SDK's name for all events."""
    from openai.types.responses import (  # noqa: PLC0415 - one SDK per file, loaded when used
        Response,
        ResponseOutputItem,
        ResponseStreamEvent,
    )

    items, *_ = get_args(ResponseOutputItem)
    for part in (*get_args(items), Response):  # built first, because the events share them
        part.model_rebuild()
    kinds_by_type: dict[Any, list[type[Any]]] = {}
    union, *_ = get_args(ResponseStreamEvent)
    for kind in get_args(union):
        for name in get_args(kind.model_fields["type"].annotation):
            kinds_by_type.setdefault(name, []).append(kind)
    return {name: kinds[0] for name, kinds in kinds_by_type.items() if len(kinds) == 1}, ResponseStreamEvent
