"""Gemini's parts beside the neutral contents: what is kept of them, and what a store can have done to them."""

import json

import pytest
from agent_framework import Content, Message
from agent_framework_gemini import GeminiChatClient

from durable_agent_host.codec.content import decode_content
from durable_agent_host.codec.message import decode_message, encode_message
from durable_agent_host.errors import RequestError
from durable_agent_host.providers.gemini.provider import GEMINI
from durable_agent_host.providers.gemini.raw_json_transport import request_json
from durable_agent_host.turn.message_input import read_message


def client():
    return GEMINI.adapt(GeminiChatClient(model="m", api_key="practice"))


def round_trip(contents, role="assistant"):
    return decode_message(json.loads(json.dumps(encode_message(Message(role, contents)))))


def test_images_and_files_are_sent_live_and_from_a_store():
    """Bytes and URLs of a caller's message are parts with their types, the same from a store; ids are refused."""
    message = [{"type": "text", "text": "look"}, {"type": "image", "data": "YWJj", "media_type": "image/png"}]
    message += [{"type": "file", "url": "gs://bucket/a.pdf"}, {"type": "audio", "url": "data:audio/wav;base64,YWJj"}]
    contents = [decode_content(content) for content in read_message(message).contents]
    GEMINI.check_message(Message("user", contents))
    both = Message("user", contents), round_trip(contents, "user")
    live, cold = (client()._prepare_gemini_messages([message])[1][0] for message in both)
    assert request_json([live]) == request_json([cold])
    assert request_json([live])[0]["parts"] == [
        {"text": "look"},
        {"inlineData": {"data": "YWJj", "mimeType": "image/png"}},
        {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}},
        {"inlineData": {"data": "YWJj", "mimeType": "audio/wav"}},
    ]
    with pytest.raises(RequestError, match="does not send file ids"):
        GEMINI.check_message(Message("user", [Content.from_hosted_file("files/abc")]))
