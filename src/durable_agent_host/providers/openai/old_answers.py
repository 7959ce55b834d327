"""Background responses that are too old to be streamed: they are retrieved in full.

The service streams a response again for five minutes, and stores it for longer ("This response can no longer be
streamed because it is more than 5 minutes old", openai/openai-python#2828). It has been paid for, so it is not
requested anew.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from agent_framework import ChatResponse, ChatResponseUpdate, ResponseStream

from durable_agent_host.agent.model_errors import advice_of
from durable_agent_host.codec.journal_entry import replayed_updates
from durable_agent_host.model.provider_item import ItemPart

_TOO_OLD: Final = re.compile(r"no longer be streamed|cannot be streamed", re.IGNORECASE)
_MAX_WAIT_SECONDS: Final = 5.0


async def stream_or_retrieve(
    stream: ResponseStream[ChatResponseUpdate, ChatResponse[Any]], retrieve: Callable[[], Awaitable[ChatResponse[Any]]]
) -> AsyncGenerator[ChatResponseUpdate]:
    """Yield a response as it streams, or in full when the service no longer streams it.

    Args:
        stream: of the response.
        retrieve: retrieves the current response, with a continuation token while it is being produced.
    """
    try:
        async with stream:
            async for update in stream:
                yield update
    except Exception as error:
        if (retry_decision := advice_of(error)) is None or _TOO_OLD.search(retry_decision.said) is None:
            raise
    else:
        return
    seconds = 0.5
    while (response := await retrieve()).continuation_token is not None:
        await asyncio.sleep(seconds)
        seconds = min(seconds * 2, _MAX_WAIT_SECONDS)
    *messages, last = replayed_updates(response)
    for update in messages:
        update.raw_representation = ItemPart(None)  # its contents are complete
        yield update
    last.raw_representation = response.raw_representation
    yield last
