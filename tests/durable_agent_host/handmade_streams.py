"""Streams with what the recordings lack, written as the services write them."""

from typing import Any

from tests.durable_agent_host.openai_outputs import (
    SHELL,
    SHELL_OUTPUT,
    build_events,
    build_response_body,
    message,
    text,
)
from tests.durable_agent_host.scripted_service import anthropic_response, chat_response, gemini_response
from tests.durable_agent_host.test_wire_chat_completions import STREAMS

_FAILED = {"outcome": "OUTCOME_FAILED", "output": "division by zero"}
_CODE = {
    "executableCode": {"language": "PYTHON", "code": "print(1)", "id": "c1"},
    "thoughtSignature": "c2VhbGVk",
}
_RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "c1"}}
_IMAGE = {"inlineData": {"mimeType": "image/png", "data": "YWJj"}, "thoughtSignature": "b3RoZXI="}
_GEMINI: dict[str, list[dict[str, Any]]] = {
    "code with an image": [{"text": "I run "}, {"text": "it."}, _CODE, _RESULT, _IMAGE, {"text": "Done."}],
    "code without ids": [{"executableCode": {"code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_FAILED"}}] * 2,
    "code with two results": [_CODE, _RESULT, {"codeExecutionResult": _FAILED}, {"text": "It failed."}],
    "signed texts": [
        {"text": "a", "thoughtSignature": "c2VhbGVk"},
        {"text": "b"},
        {"text": "", "thoughtSignature": "b3RoZXI="},
    ],
    "thoughts": [{"text": "hm ", "thought": True}, {"text": "hm", "thought": True}, {"text": "so"}],
    "unknown": [
        {"holodeckResult": {"scene": "beach"}, "thoughtSignature": "c2VhbGVk"},
        {"text": "x"},
        {"thought": True},
    ],
    "calls": [
        {"functionCall": {"name": "f", "args": {"a": 1}, "id": "f1"}, "thoughtSignature": "c2VhbGVk"},
        {"functionCall": {"name": "f", "args": {"a": 2}, "id": "f2"}},
        {"functionCall": {"name": "g", "id": "f3", "urgency": 9}},
    ],
}
_RATINGS = [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"}]
_FINISHED_CHUNKS = [
    {"candidates": [candidate | {"finishReason": "STOP", "safetyRatings": _RATINGS}]}
    for chunk in gemini_response({"text": "hm", "thought": True}, {"text": "a"}, {"text": "b"}, *_GEMINI["calls"])
    for candidate in chunk["candidates"]
]
_COMMAND_FAILED = {"stdout": "", "stderr": "no rule", "outcome": {"type": "exit", "exit_code": 2}}
_RESPONSES: dict[str, list[dict[str, Any]]] = {
    "commands that failed": [
        SHELL,
        SHELL_OUTPUT | {"output": [_COMMAND_FAILED]},
        SHELL | {"id": "sh_2", "call_id": "call_2"},
        SHELL_OUTPUT | {"id": "sho_2", "call_id": "call_2"},
        {
            "type": "image_generation_call",
            "id": "ig_1",
            "status": "failed",
            "result": None,
            "error": {"message": "not drawn"},
        },
    ],
    "a custom tool that the service runs": [
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "call_id": "xs_call_1",
            "name": "x_keyword_search",
            "input": '{"query": "a"}',
            "status": "completed",
        }
    ],
}
_HOLODECK = (
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "holodeck", "input": {"scene": "beach"}},
    {"type": "holodeck_tool_result", "tool_use_id": "srvtoolu_1", "content": {"text": "sand"}},
    {"type": "text", "text": "Nice."},
)

HANDMADE_STREAMS: dict[str, list[Any]] = {
    "gemini/a finish reason in each chunk": _FINISHED_CHUNKS,
    **{f"gemini/{name}": gemini_response(*parts) for name, parts in _GEMINI.items()},
    **{
        f"openai-responses/{name}": build_events(build_response_body([*items, message(1, text("Found."))]))
        for name, items in _RESPONSES.items()
    },
    **{f"chat-completions/{name}": chat_response(*deltas) for name, (deltas, _) in STREAMS.items()},
    "anthropic/a result that nobody knows": anthropic_response(*_HOLODECK),
}
"""Folder of the service's recordings and what the stream has → its events."""
