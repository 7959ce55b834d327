"""Errors of OpenAI's services: failures within a response, and what a turn recovers from."""

import re
from typing import Any, Final, cast

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.client_errors import rejection_text, response_failure

_CONTINUATION_LOST: Final = re.compile(
    r"previous_response_not_found|(?:[Pp]revious response|Response|Conversation) with id '[^']*' not found"
    r"|No tool output found for |MCP approval requests do not have an approval"
)
_REASONING_UNREADABLE: Final = re.compile(
    r"invalid_encrypted_content|The encrypted content .*could not be verified"
    r"|of type 'reasoning' was provided without its required following item",
    re.DOTALL,
)
_CONTAINER_EXPIRED: Final = re.compile(
    r"(?:Expected container_id: |Container (?:is expired|with id |'))\W*(?P<id>cntr_\w+)?", re.IGNORECASE
)
"""The service's wording, recorded or quoted by several public projects (pydantic/pydantic-ai#7461,
openai/codex#8145 and others)."""


def parse_failure(event: Any) -> ProviderError | None:
    """Read the failure that an event of a stream reports.

    Returns:
        The error with the service's reason; None without a failure.
    """
    if event.type == "error":
        nested_error: Any = getattr(event, "error", None)  # in the API's JSON; the SDK's model is flat
        is_nested = isinstance(nested_error, dict)
        error_fields = cast("dict[str, Any]", nested_error if is_nested else vars(event))
        return response_failure(error_fields.get("code"), error_fields.get("message"))
    if event.type != "response.failed":
        return None
    response = event.response
    error = response_failure(getattr(response.error, "code", None), getattr(response.error, "message", None))
    usage: Any = getattr(response, "usage", None)
    error.usage = {
        "input_token_count": getattr(usage, "input_tokens", None),
        "output_token_count": getattr(usage, "output_tokens", None),
        "total_token_count": getattr(usage, "total_tokens", None),
    }
    return error


def find_lost_state(error: BaseException) -> LostState | None:
    """Return what the service has lost, when it rejected a request for that reason.

    Returns:
        ``continuation`` when the previous response or the conversation no longer exists, or ends with an open call;
        ``container`` when a container has expired; ``reasoning`` when encrypted content has another key; otherwise
        None.
    """
    text = rejection_text(error, {400, 404, 410})
    if _CONTINUATION_LOST.search(text):
        return LostState("continuation")
    if _REASONING_UNREADABLE.search(text):
        return LostState("reasoning")
    if match := _CONTAINER_EXPIRED.search(text):
        return LostState("container", match["id"] or "")
    return None
