"""A text that an item has in common with its contents is stored once, and the item is read as it was."""

import json

from agent_framework import Content, Message

from durable_agent_host.codec.message import decode_message, encode_message
from durable_agent_host.model.provider_item import ITEM, STAMP
from durable_agent_host.providers.item_metadata import ItemMetadata, is_edited

METADATA = ItemMetadata("acme")
LONG = "a text of more than twenty-four characters"
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="


def message_of(*items):
    """Make a message with a content for each item."""
    contents = [Content.from_text(item["text"]) for item in items]
    for content, item in zip(contents, items, strict=True):
        METADATA.attach([content], {"type": "note", "id": "n_1", **item})
    return Message("assistant", contents)


def items_in(message):
    """Return the items of a message."""
    return [(METADATA.find(content) or {}).get(ITEM) for content in message.contents]


def test_a_text_is_stored_once():
    """The item in memory has it; what is stored has it in the content alone."""
    message = message_of({"text": LONG, "parts": [{"text": LONG}, {"short": "yes"}]})
    stored = encode_message(message)
    assert json.dumps(stored).count(LONG) == 1
    assert items_in(decode_message(stored)) == items_in(message)


def test_an_image_is_stored_once():
    """The item has the bytes alone, its content a data URI."""
    content = Content.from_uri(f"data:image/png;base64,{IMAGE}", media_type="image/png")
    METADATA.attach([content], {"type": "picture", "id": "p_1", "result": IMAGE})
    message = Message("assistant", [content])
    stored = encode_message(message)
    assert json.dumps(stored).count(IMAGE) == 1
    assert items_in(decode_message(stored)) == items_in(message)


def test_an_item_does_not_depend_on_others():
    """A message that loses a content keeps the items of the others."""
    message = message_of({"text": f"{LONG}, first"}, {"text": f"{LONG}, second"})
    stored = encode_message(message)
    del stored["contents"][0]
    assert items_in(decode_message(stored)) == items_in(message)[1:]


def test_a_text_that_was_edited_in_the_store_is_an_edit():
    """The item no longer goes back; one whose contents are gone is none."""
    stored = encode_message(message_of({"text": LONG}))
    stored["contents"][0]["text"] = "another text"
    assert is_edited(decode_message(stored).contents)
    stored["contents"][0]["extensionData"]["durableAgentHost"]["additional_properties"][STAMP]["shared"] = [[[], []]]
    assert items_in(decode_message(stored)) == [None]


def test_what_looks_like_a_reference_is_text():
    """Only the host's own list refers to other values, whatever an item has."""
    message = message_of({"text": "short", "input": {"shared": [[["text"], [0, "text"]]]}, "shared": [[["text"], [9]]]})
    assert items_in(decode_message(encode_message(message))) == items_in(message)
