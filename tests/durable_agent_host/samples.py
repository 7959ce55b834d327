"""A content of every type that the framework has, and hypothesis strategies for what models and tools put into them."""

from agent_framework import Content
from hypothesis import strategies as st

CITATION = {
    "type": "citation",
    "title": "summary.csv",
    "file_id": "cfile_68c2e7084ab48191a67824aa1f4c90f1",
    "url": "sandbox:/mnt/data/summary.csv",
    "annotated_regions": [{"type": "text_span", "start_index": 465, "end_index": 497}],
    "additional_properties": {"container_id": "cntr_68c2e6f380d881908a57a82d394434ff", "index": 0},
}
CALL = Content.from_function_call(
    "call_1",
    "echo",
    arguments='{"text":"hello world"}',
    additional_properties={"fc_id": "fc_1", "openai": {"item_id": "fc_1", "output_index": 2}},
)

CONTENTS: dict[str, list[Content]] = {
    "text": [
        Content.from_text("plain"),
        Content.from_text(""),
        Content.from_text("größer 😀\n", annotations=[CITATION], additional_properties={"phase": "final_answer"}),
    ],
    "text_reasoning": [
        Content.from_text_reasoning(id="rs_1", text="Thinking", protected_data="gAAAAABo+/=", additional_properties={}),
        Content.from_text_reasoning(protected_data="only encrypted", additional_properties={"encrypted": None}),
    ],
    "data": [
        Content.from_uri("data:image/png;base64,iVBORw0KGgo=", media_type="image/png"),
        Content("data", uri="data:text/plain;base64,aGk=", media_type="text/plain", name="a.txt", file_id="file_1"),
    ],
    "uri": [
        Content.from_uri("https://example.com/a.pdf", media_type="application/pdf"),
        Content("uri", uri="https://example.com/no-media-type"),
    ],
    "error": [
        Content.from_error(message="it broke", error_code="E1", error_details="at line 3"),
        Content.from_error(message="refused", additional_properties={"retry": False}),
    ],
    "function_call": [
        CALL,
        Content.from_function_call("call_2", "no_arguments"),
        Content.from_function_call("call_3", "object", arguments={"a": [1, {"b": None}]}),
        Content.from_function_call(
            "call_4", "told", arguments="{}", informational_only=True, exception="ValueError: x"
        ),
        Content.from_function_call("call_5", "hosted", arguments='{"q": 1}', hosted=True, server_name="files"),
    ],
    "function_result": [
        Content.from_function_result("call_1", result="hello world", additional_properties={"fc_id": "fc_1"}),
        Content.from_function_result("call_2", result="", exception="ZeroDivisionError: division by zero"),
        Content.from_function_result(
            "call_3",
            result=[Content.from_text("seen"), Content.from_uri("data:image/png;base64,AA==", media_type=None)],
        ),
        Content("function_result", call_id="call_4", result={"rows": [1, 2.5, None, "x"]}),
    ],
    "usage": [
        Content.from_usage({"input_token_count": 7, "output_token_count": 0, "total_token_count": 7}),
        Content.from_usage({"input_token_count": 1, "openai.reasoning_tokens": 64}),
    ],
    "hosted_file": [Content.from_hosted_file("file_1", media_type="text/csv", name="summary.csv")],
    "hosted_vector_store": [Content.from_hosted_vector_store("vs_1", additional_properties={"purpose": "search"})],
    "code_interpreter_tool_call": [
        Content.from_code_interpreter_tool_call(
            call_id="ci_1",
            inputs=[Content.from_text("print('hi')\n", additional_properties={"order": 1})],
            additional_properties={"container_id": "cntr_1"},
        ),
        Content("code_interpreter_tool_call", call_id="ci_2", inputs=[], status="completed"),
    ],
    "code_interpreter_tool_result": [
        Content.from_code_interpreter_tool_result(
            call_id="ci_1",
            outputs=[
                Content.from_text("hi\n"),
                Content("uri", uri="https://example.com/plot.png", media_type="image/png"),
            ],
        )
    ],
    "image_generation_tool_call": [Content.from_image_generation_tool_call(image_id="ig_1")],
    "image_generation_tool_result": [
        Content.from_image_generation_tool_result(
            image_id="ig_1", outputs=Content.from_uri("data:image/webp;base64,AA==", media_type="image/webp")
        )
    ],
    "mcp_server_tool_call": [
        Content.from_mcp_server_tool_call("mcp_1", "search", server_name="docs", arguments='{ "q" : "x" }'),
        Content.from_mcp_server_tool_call("mcp_2", "search", server_name="docs", arguments={"q": "x"}),
    ],
    "mcp_server_tool_result": [
        Content.from_mcp_server_tool_result("mcp_1", output=[Content.from_text("found")]),
        Content.from_mcp_server_tool_result("mcp_2", output={"hits": [1, 2]}),
    ],
    "search_tool_call": [Content.from_search_tool_call("ws_1", tool_name="web_search", arguments={"query": "x"})],
    "search_tool_result": [
        Content.from_search_tool_result("ws_1", tool_name="web_search", items=[Content.from_text("result")])
    ],
    "shell_tool_call": [
        Content.from_shell_tool_call(call_id="sh_1", commands=["ls -l", "pwd"], timeout_ms=2000, max_output_length=4096)
    ],
    "shell_tool_result": [
        Content.from_shell_tool_result(
            call_id="sh_1", outputs=[Content.from_shell_command_output(stdout="/", exit_code=0)], max_output_length=4096
        )
    ],
    "shell_command_output": [Content.from_shell_command_output(stdout="a", stderr="b", exit_code=0, timed_out=False)],
    "computer_tool_call": [
        Content("computer_tool_call", call_id="cu_1", actions=[{"type": "click", "x": 1, "y": 2}], status="completed")
    ],
    "computer_tool_result": [
        Content(
            "computer_tool_result",
            call_id="cu_1",
            screenshot=Content.from_uri("data:image/png;base64,AA==", media_type="image/png"),
        )
    ],
    "function_approval_request": [Content.from_function_approval_request("appr_1", CALL)],
    "function_approval_response": [Content.from_function_approval_response(True, "appr_1", CALL)],
    "oauth_consent_request": [Content.from_oauth_consent_request("https://example.com/consent")],
}

finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=6), json_values, max_size=4)
properties = st.dictionaries(
    st.text(max_size=6).filter(lambda name: name not in {"server_label", "raw_representation"}), json_values, max_size=3
)
