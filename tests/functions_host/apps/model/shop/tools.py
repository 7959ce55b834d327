"""MCP tools."""

import json

import azure.functions as func

tools = func.Blueprint()


@tools.mcp_tool_trigger(
    arg_name="context",
    tool_name="add",
    description="Add two numbers.",
    tool_properties=json.dumps(
        [
            {"propertyName": "a", "propertyType": "number", "description": "one", "isRequired": True},
            {"propertyName": "b", "propertyType": "number", "description": "other", "isRequired": False},
        ]
    ),
)
def add_numbers(context: str) -> str:
    call = json.loads(context)
    return str(call["arguments"]["a"] + call["arguments"].get("b", 1))


@tools.mcp_tool_trigger(arg_name="context", tool_name="fail", description="Fail.", tool_properties="[]")
def fail(context: str) -> str:
    raise ValueError("as asked")


@tools.mcp_tool_trigger(
    arg_name="context", tool_name="measure", description="Measure.", tool_properties="[]", useResultSchema=True
)
def measure(context: str) -> str:
    content = [{"type": "text", "text": "7 cm"}]
    return json.dumps({"content": json.dumps(content), "structuredContent": json.dumps({"size": 7})})
