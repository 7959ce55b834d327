"""The bodies of requests: messages, runs, outputs of tools and approvals. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import Content, FunctionTool, Message

from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.providers.azure_ai_agents.packing import PROVIDER, STAMPS
from durable_agent_host.providers.azure_ai_agents.words import role_in_thread, text_of_result, words_for

Json = dict[str, Any]

_MOST_METADATA: Final = 512
_ATTACHED_FOR: Final = ({"type": "file_search"}, {"type": "code_interpreter"})
_SETTINGS: Final = {
    "model": "model",
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_completion_tokens",
    "max_prompt_tokens": "max_prompt_tokens",
    "allow_multiple_tool_calls": "parallel_tool_calls",
    "truncation_strategy": "truncation_strategy",
    "additional_instructions": "additional_instructions",
    "instructions": "instructions",
}
"""Option of the framework → field of a run."""


@dataclass
class Answers:
    """A request's answers to the calls that a run waits for.

    Attributes:
        outputs: of functions.
        approvals: of MCP servers' calls: id → whether it may run.
        run_id: of the waiting run, if the results name it.
    """

    outputs: list[Json] = field(default_factory=list[Json])
    approvals: dict[str, bool] = field(default_factory=dict[str, bool])
    run_id: str = ""

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.outputs or self.approvals)

    @property
    def call_ids(self) -> frozenset[str]:
        """The answered calls."""
        return frozenset([*(str(one["tool_call_id"]) for one in self.outputs), *self.approvals])


def answers_in(messages: Sequence[Message]) -> Answers:
    """Read results and approvals from a request that continues a run. Guarantee: pure.

    Args:
        messages: those that the service does not have yet.
    """
    answers = Answers()
    for content in (content for message in messages for content in message.contents):
        if content.type == "function_result":
            answers.outputs.append({"tool_call_id": content.call_id, "output": text_of_result(content)})
            stamp: Any = content.additional_properties.get(STAMP)  # the framework copies the call's stamp
            if isinstance(stamp, dict):
                answers.run_id = str(cast("Json", stamp).get("run_id") or answers.run_id)
        elif content.type == "function_approval_response" and content.function_call and content.function_call.hosted:
            answers.approvals[str(content.id)] = content.approved is True
    return answers


def approval_headers(tools: Sequence[Any], resources: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Return the headers for each MCP server, which are sent again with an approval. Guarantee: pure.

    Args:
        tools: of the agent.
        resources: for the run.

    Returns:
        The server's label → its headers.
    """
    listed = [*_mcp_resources(tools), *cast("list[Json]", resources.get("mcp") or [])]
    return {str(one.get("server_label")): one["headers"] for one in listed if one.get("headers")}


def build_answers(answers: Answers, asked: Mapping[str, str], headers: Mapping[str, Mapping[str, str]]) -> Json:
    """Write the body that answers a run's calls. Guarantee: pure.

    Args:
        answers: from the request.
        asked: call that waits for an approval → label of its server.
        headers: of each server.
    """
    body: Json = {}
    if answers.outputs:
        body["tool_outputs"] = answers.outputs
    if answers.approvals:
        body["tool_approvals"] = [
            {"tool_call_id": call_id, "approve": approve}
            | ({"headers": dict(headers[label])} if (label := asked.get(call_id, "")) in headers else {})
            for call_id, approve in answers.approvals.items()
        ]
    return body


def metadata_of(turn_id: str, bodies: Sequence[Json]) -> dict[str, str]:
    """Return the metadata by which a message and its run are found again after a crash. Guarantee: pure.

    Args:
        turn_id: of the turn.
        bodies: of the messages; they distinguish several requests of one turn.
    """
    if not turn_id:
        return {}
    digest = hashlib.sha256(json.dumps(bodies, sort_keys=True).encode()).hexdigest()[:16]
    name = turn_id if len(turn_id) <= _MOST_METADATA else hashlib.sha256(turn_id.encode()).hexdigest()
    return {"turn_id": name, "request": digest}


def build_messages(messages: Sequence[Message], uploaded: Mapping[int, str]) -> list[Json]:
    """Write messages for a thread; adjacent ones of the assistant become one. Guarantee: pure.

    Args:
        messages: of a conversation, or the new ones.
        uploaded: files that were uploaded for the messages, by the identity of their contents.
    """
    bodies: list[Json] = []
    for message in messages:
        if message.role in {"system", "developer"}:
            continue
        body: Json = {"role": role_in_thread(message), "content": list[Json]()}
        for content in message.contents:
            _add(body, content, uploaded)
        if bodies and body["role"] == bodies[-1]["role"] == "assistant":
            bodies[-1]["content"] += body["content"]
        elif body["content"] or body.get("attachments"):
            bodies.append(body)
    return [_simple(body) for body in bodies]


def _simple(body: Json) -> Json:
    """Send a message of only texts as one text, in the form that all versions of the service accept."""
    parts = body["content"]
    if all(part["type"] == "text" for part in parts):
        return body | {"content": "\n".join(part["text"] for part in parts) or "(a file)"}
    return body


def _add(body: Json, content: Content, uploaded: Mapping[int, str]) -> None:
    file_id = uploaded.get(id(content)) or (content.file_id if content.type == "hosted_file" else None)
    is_image = content.additional_properties.get("kind") == "image"
    is_ours = content.additional_properties.get("provider") in {None, PROVIDER}
    if content.type in {"uri", "data"} and str(content.media_type).startswith("image/"):
        body["content"].append({"type": "image_url", "image_url": {"url": content.uri}})
    elif file_id and is_ours and is_image:
        body["content"].append({"type": "image_file", "image_file": {"file_id": file_id}})
    elif file_id and is_ours:
        body.setdefault("attachments", []).append({"file_id": file_id, "tools": list(_ATTACHED_FOR)})
    elif (STAMPS.of(content) is None or content.text or content.type != "text") and (said := words_for(content)):
        body["content"].append({"type": "text", "text": said})


def files_to_upload(messages: Sequence[Message]) -> list[Content]:
    """List contents whose bytes the service accepts only as files. Guarantee: pure."""
    return [
        content
        for message in messages
        if message.role == "user"
        for content in message.contents
        if content.type == "data" and not str(content.media_type).startswith("image/")
    ]


def build_run(options: Mapping[str, Any], agent: Mapping[str, Any], resources: Mapping[str, Any], said: str) -> Json:
    """Write the body of a run. Guarantee: pure.

    Args:
        options: of the framework, for this call.
        agent: from the service; its tools stay when the app adds its own.
        resources: for tools, given to every run by the app.
        said: the request's system messages.
    """
    body: Json = {"assistant_id": agent["id"]}
    body |= {theirs: options[ours] for ours, theirs in _SETTINGS.items() if options.get(ours) is not None}
    if said:
        body["additional_instructions"] = "\n".join(filter(None, [body.get("additional_instructions"), said]))
    offered = list(cast("Sequence[Any]", options.get("tools") or ()))
    theirs = cast("list[Json]", agent.get("tools") or [])
    ours = [build_tool(tool) for tool in offered]
    if any(tool not in theirs for tool in ours):
        named = {_name_of(tool) for tool in ours}
        body["tools"] = [*(tool for tool in theirs if _name_of(tool) not in named), *ours]
    if (choice := _choice(options.get("tool_choice"))) is not None and (ours or theirs):
        body["tool_choice"] = choice
    if options.get("response_format") is not None:
        body["response_format"] = _format(options["response_format"])
    found = {**resources, **cast("Mapping[str, Any]", options.get("tool_resources") or {})}
    if servers := [*cast("list[Json]", found.get("mcp") or []), *_mcp_resources(offered)]:
        found["mcp"] = servers
    return body | ({"tool_resources": found} if found else {})


def build_tool(tool: Any) -> Json:
    """Write a tool in the service's format. Guarantee: pure.

    Args:
        tool: of the framework, of the SDK, or JSON.
    """
    if isinstance(tool, FunctionTool):
        schema = tool.parameters()
        named = {"name": tool.name, "description": tool.description or "", "parameters": schema}
        return {"type": "function", "function": named}
    written = _json_of(tool)
    return {name: value for name, value in written.items() if name not in _OF_RUNS}


_OF_RUNS: Final = frozenset({"headers", "require_approval"})


def _mcp_resources(tools: Sequence[Any]) -> list[Json]:
    """Write an MCP tool's resources for runs: its headers are not part of its definition."""
    written = [_json_of(tool) for tool in tools if not isinstance(tool, FunctionTool)]
    servers = [one for one in written if one.get("type") == "mcp" and _OF_RUNS & one.keys()]
    return [{name: one[name] for name in ("server_label", *sorted(_OF_RUNS)) if name in one} for one in servers]


def _json_of(tool: Any) -> Json:
    write = getattr(tool, "as_dict", None)
    return cast("Json", write() if callable(write) else dict(tool))


def _name_of(tool: Mapping[str, Any]) -> str:
    kind = str(tool.get("type"))
    name = cast("Mapping[str, Any]", tool.get("function") or {}).get("name") if kind == "function" else None
    return f"{kind}:{name or tool.get('server_label') or ''}"


def _choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    told = cast("Mapping[str, Any]", choice)
    if name := told.get("required_function_name"):
        return {"type": "function", "function": {"name": name}}
    return told.get("mode") or dict(told)


def _format(wanted: Any) -> Any:
    if isinstance(wanted, type) and callable(schema := getattr(wanted, "model_json_schema", None)):
        return {"type": "json_schema", "json_schema": {"name": wanted.__name__, "schema": schema()}}
    told = cast("Json", wanted)
    if isinstance(wanted, Mapping) and {"type", "properties"} <= told.keys():
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(told)}}
    return told
