"""The bodies of requests: messages, runs, outputs of tools and approvals."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import Content, FunctionTool, Message

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.codec.tool_result_text import result_text, value_text
from durable_agent_host.model.provider_item import ITEM, STAMP
from durable_agent_host.providers.cross_provider_history import describe_content
from durable_agent_host.providers.neutral_contents import as_objects
from durable_agent_host_azure_ai_agents.thread_contents import PROVIDER

Json = dict[str, Any]

_MAX_METADATA_CHARACTERS: Final = 512
_INSTRUCTING_ROLES: Final = frozenset({"system", "developer"})
_APPROVALS: Final = frozenset({"function_approval_request", "function_approval_response"})
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
class ToolOutputs:
    """A request's results and approvals for the calls that a run waits for.

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
        """Ids of the completed calls."""
        return frozenset([*(str(output["tool_call_id"]) for output in self.outputs), *self.approvals])


def parse_tool_outputs(messages: Sequence[Message]) -> ToolOutputs:
    """Read results and approvals from a request that continues a run."""
    tool_outputs = ToolOutputs()
    for content in (content for message in messages for content in message.contents):
        if content.type == "function_result":
            output = value_text(content.items) or value_text(content.result) or str(content.exception or "")
            tool_outputs.outputs.append({"tool_call_id": content.call_id, "output": output})
            run_id = value_at(content.additional_properties, STAMP, ITEM, "block", "run_id")  # copied from the call
            tool_outputs.run_id = str(run_id or tool_outputs.run_id)
        elif content.type == "function_approval_response" and content.function_call and content.function_call.hosted:
            tool_outputs.approvals[str(content.id)] = content.approved is True
    return tool_outputs


def approval_headers(tools: Sequence[Any], resources: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Return the headers for each MCP server, which are sent again with an approval.

    Returns:
        The server's label → its headers.
    """
    mcp_resources = [*_mcp_resources(tools), *as_objects(resources.get("mcp"))]
    return {
        str(resource.get("server_label")): resource["headers"] for resource in mcp_resources if resource.get("headers")
    }


def build_tool_outputs(
    tool_outputs: ToolOutputs, labels_by_call_id: Mapping[str, str], headers: Mapping[str, Mapping[str, str]]
) -> Json:
    """Build the body with the results of a run's calls."""
    body: Json = {}
    if tool_outputs.outputs:
        body["tool_outputs"] = tool_outputs.outputs
    if tool_outputs.approvals:
        body["tool_approvals"] = [
            {"tool_call_id": call_id, "approve": approve}
            | ({"headers": dict(headers[label])} if (label := labels_by_call_id.get(call_id, "")) in headers else {})
            for call_id, approve in tool_outputs.approvals.items()
        ]
    return body


def build_metadata(turn_id: str, bodies: Sequence[Json]) -> dict[str, str]:
    """Build the metadata by which a message and its run are found after a crash."""
    if not turn_id:
        return {}
    digest = hashlib.sha256(json.dumps(bodies, sort_keys=True).encode()).hexdigest()[:16]
    name = turn_id if len(turn_id) <= _MAX_METADATA_CHARACTERS else hashlib.sha256(turn_id.encode()).hexdigest()
    return {"turn_id": name, "request": digest}


def instructions_text(messages: Sequence[Message]) -> str:
    """Collect the app's instructions to the model, which are sent with the run."""
    contents = (content for message in messages if message.role in _INSTRUCTING_ROLES for content in message.contents)
    return "\n".join(content.text for content in contents if content.text)


def build_messages(messages: Sequence[Message], file_ids: Mapping[int, str]) -> list[Json]:
    """Build messages for a thread; adjacent ones of the assistant become one."""
    bodies: list[Json] = []
    for message in messages:
        if message.role in _INSTRUCTING_ROLES:
            continue
        body: Json = {"role": "user" if message.role == "user" else "assistant", "content": list[Json]()}
        for content in message.contents:
            _add_content(body, content, file_ids)
        if bodies and body["role"] == bodies[-1]["role"] == "assistant":
            bodies[-1]["content"] += body["content"]
        elif body["content"] or body.get("attachments"):
            bodies.append(body)
    return [_simplify(body) for body in bodies]


def _simplify(body: Json) -> Json:
    """Merge a message of only texts into one text, as all versions of the service accept it."""
    parts = body["content"]
    if all(part["type"] == "text" for part in parts):
        return body | {"content": "\n".join(part["text"] for part in parts) or "(a file)"}
    return body


def _add_content(body: Json, content: Content, file_ids: Mapping[int, str]) -> None:
    file_id = file_ids.get(id(content)) or (content.file_id if content.type == "hosted_file" else None)
    is_image = content.additional_properties.get("kind") == "image"
    is_own_file = content.additional_properties.get("provider") in {None, PROVIDER}
    if content.type in {"uri", "data"} and str(content.media_type).startswith("image/"):
        body["content"].append({"type": "image_url", "image_url": {"url": content.uri}})
    elif file_id and is_own_file and is_image:
        body["content"].append({"type": "image_file", "image_file": {"file_id": file_id}})
    elif file_id and is_own_file:
        body.setdefault("attachments", []).append({"file_id": file_id, "tools": list(_ATTACHED_FOR)})
    elif content.type not in _APPROVALS:
        description = result_text(content) if content.type in {"uri", "data"} else describe_content(content)
        body["content"] += [{"type": "text", "text": description}] if description else []


def files_to_upload(messages: Sequence[Message]) -> list[Content]:
    """List contents whose bytes the service accepts only as files."""
    return [
        content
        for message in messages
        if message.role == "user"
        for content in message.contents
        if content.type == "data" and not str(content.media_type).startswith("image/")
    ]


def build_run(
    options: Mapping[str, Any], agent: Mapping[str, Any], resources: Mapping[str, Any], instructions: str
) -> Json:
    """Build the body of a run."""
    body: Json = {"assistant_id": agent["id"]}
    body |= {field_name: options[option] for option, field_name in _SETTINGS.items() if options.get(option) is not None}
    if instructions:
        body["additional_instructions"] = "\n".join(filter(None, [body.get("additional_instructions"), instructions]))
    option_tools = list(cast("Sequence[Any]", options.get("tools") or ()))
    agent_tools = as_objects(agent.get("tools"))
    app_tools = [build_tool(tool) for tool in option_tools]
    if any(tool not in agent_tools for tool in app_tools):
        app_tool_names = {_tool_key(tool) for tool in app_tools}
        body["tools"] = [*(tool for tool in agent_tools if _tool_key(tool) not in app_tool_names), *app_tools]
    if (choice := _to_tool_choice(options.get("tool_choice"))) is not None and (app_tools or agent_tools):
        body["tool_choice"] = choice
    if options.get("response_format") is not None:
        body["response_format"] = _to_response_format(options["response_format"])
    tool_resources = {**resources, **object_at(options, "tool_resources")}
    if servers := [*as_objects(tool_resources.get("mcp")), *_mcp_resources(option_tools)]:
        tool_resources["mcp"] = servers
    return body | ({"tool_resources": tool_resources} if tool_resources else {})


def build_tool(tool: Any) -> Json:
    """Encode a tool in the service's format."""
    if isinstance(tool, FunctionTool):
        schema = tool.parameters()
        function_fields = {"name": tool.name, "description": tool.description or "", "parameters": schema}
        return {"type": "function", "function": function_fields}
    tool_fields = _to_json(tool)
    return {name: value for name, value in tool_fields.items() if name not in _RUN_FIELDS}


_RUN_FIELDS: Final = frozenset({"headers", "require_approval"})


def _mcp_resources(tools: Sequence[Any]) -> list[Json]:
    """Build an MCP tool's resources for runs: its headers are not part of its definition."""
    tool_list = [_to_json(tool) for tool in tools if not isinstance(tool, FunctionTool)]
    servers = [
        tool_fields
        for tool_fields in tool_list
        if tool_fields.get("type") == "mcp" and _RUN_FIELDS & tool_fields.keys()
    ]
    return [
        {name: tool_fields[name] for name in ("server_label", *sorted(_RUN_FIELDS)) if name in tool_fields}
        for tool_fields in servers
    ]


def _to_json(tool: Any) -> Json:
    write = getattr(tool, "as_dict", None)
    return cast("Json", write() if callable(write) else dict(tool))


def _tool_key(tool: Mapping[str, Any]) -> str:
    kind = str(tool.get("type"))
    name = object_at(tool, "function").get("name") if kind == "function" else None
    return f"{kind}:{name or tool.get('server_label') or ''}"


def _to_tool_choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    choice_fields = cast("Mapping[str, Any]", choice)
    if name := choice_fields.get("required_function_name"):
        return {"type": "function", "function": {"name": name}}
    return choice_fields.get("mode") or dict(choice_fields)


def _to_response_format(response_format: Any) -> Any:
    if isinstance(response_format, type) and callable(schema := getattr(response_format, "model_json_schema", None)):
        return {"type": "json_schema", "json_schema": {"name": response_format.__name__, "schema": schema()}}
    format_fields = cast("Json", response_format)
    if isinstance(response_format, Mapping) and {"type", "properties"} <= format_fields.keys():
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(format_fields)}}
    return format_fields
