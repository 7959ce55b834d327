"""What tests of the fold compare, and the order of events that they change."""

from durable_agent_host.providers.openai.item_types import ITEM_TYPES


def contents_of(messages):
    return [content for message in messages for content in message["contents"]]


def is_sent_back(item):
    """Return whether an item of a response is part of the next request: all that is not known to be refused there."""
    kind = item["type"]
    return kind in ITEM_TYPES or kind != "function_call_output"


SEALED_ANEW = {"protected_data", "encrypted_content"}
"""The service seals its reasoning anew for every event: each payload is accepted, no two are equal."""


def comparable(value, name=None):
    """Leave out the listed differences between a finished item of a stream and of a final response.

    Token probabilities that are an empty list, and the status of a call a second time among its properties.
    """
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    properties = name == "additional_properties"
    return {
        key: "sealed" if key in SEALED_ANEW and inner else comparable(inner, key)
        for key, inner in value.items()
        if not (key == "logprobs" and not inner)
        and not (key == "openai" and inner == {"logprobs": []})
        and not (properties and key == "status")
        and inner is not None
    }
