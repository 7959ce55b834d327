"""Every rule of the live API with its exact message, and requests that must be accepted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.transcript import Transcript
from practice_model.rules.item_shapes import FIELDS
from practice_model.rules.requests import PARAMETERS, Rules, check_request
from practice_model.store import Store

RS, MSG, FC, CI = "rs_" + "a" * 50, "msg_" + "b" * 50, "fc_" + "c" * 50, "ci_" + "d" * 50
CALL, CNTR = "call_" + "e" * 24, "cntr_" + "f" * 48

USER = {"role": "user", "content": "Hello"}
RESPONSE = {
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
    "type": "message",
}
OWN_RESPONSE = RESPONSE | {"id": MSG, "status": "completed"}
REASONING = {"type": "reasoning", "id": RS, "summary": [], "encrypted_content": sealed.sign_reasoning(RS, "thought")}
CALL_ITEM = {"type": "function_call", "id": FC, "call_id": CALL, "name": "echo", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": CALL, "output": "done"}
CODE = {"type": "code_interpreter_call", "id": CI, "code": "1", "container_id": CNTR, "outputs": None}
CODE |= {"status": "completed"}
BARE_CALL = {name: value for name, value in CALL_ITEM.items() if name != "id"}


def check(*items, service_state=None, rules=None, now=0.0, **body):
    body = {"model": "practice", "input": list(items) or "Hello", **body}
    return check_request(body, service_state or Store(), rules or Rules(), now=now)


def get_error_message(*items, **kwargs):
    violation = check(*items, **kwargs)
    assert violation, "the request was accepted"
    return violation.message


def build_store(*output, is_stored=True, transcript=(), response_id="resp_1"):
    store = Store()
    response = {"id": response_id, "output": list(output)}
    store.record_response(response, is_stored=is_stored, transcript=list(transcript), events=[], now=0.0)
    return store


def test_every_rejection_has_the_error_body_of_the_api():
    """The body has message, type, param and code."""
    violation = check(USER | {"status_code": 1})
    assert violation.status == 400
    assert violation.body == {
        "error": {
            "message": "Unknown parameter: 'input[0].status_code'.",
            "type": "invalid_request_error",
            "param": "input[0].status_code",
            "code": "unknown_parameter",
        }
    }


def test_a_null_status_on_reasoning_is_an_unknown_parameter():
    """The field that clients add by dumping None is rejected."""
    assert (
        get_error_message(USER, REASONING | {"status": None}, OWN_RESPONSE) == "Unknown parameter: 'input[1].status'."
    )


def test_unknown_parameters_of_the_request_are_rejected():
    """Parameters of Chat Completions are unknown."""
    assert get_error_message(seed=1) == "Unknown parameter: 'seed'."


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"type": "reasoning", "id": RS}, "summary"),
        ({"type": "reasoning", "summary": []}, "id"),
        ({"type": "function_call", "call_id": CALL, "name": "echo"}, "arguments"),
        ({"type": "function_call_output", "output": "x"}, "call_id"),
        ({key: value for key, value in CODE.items() if key != "outputs"}, "outputs"),
        ({"role": "user"}, "content"),
    ],
)
def test_missing_fields_are_named(item, field):
    """A missing required field is reported with its path."""
    violation = check(item)
    assert violation.message == f"Missing required parameter: 'input[0].{field}'."
    assert violation.code == "missing_required_parameter"


def test_a_code_interpreter_tool_needs_its_container():
    """The container of the tool is required."""
    assert (
        get_error_message(tools=[{"type": "code_interpreter"}]) == "Missing required parameter: 'tools[0].container'."
    )
    assert check(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}]) is None
    assert get_error_message(tools=[{"type": "function"}]) == "Missing required parameter: 'tools[0].name'."


@pytest.mark.parametrize(
    ("item", "prefix"),
    [(CALL_ITEM | {"id": "toolu_1"}, "fc"), (REASONING | {"id": "msg_1"}, "rs"), (OWN_RESPONSE, "msg")],
)
def test_ids_begin_with_the_prefix_of_their_type(item, prefix):
    """An id of another provider or item type is rejected."""
    item = item | {"id": "toolu_1" if prefix == "msg" else item["id"]}
    violation = check(item)
    assert violation.message == f"Invalid 'input[0].id': '{item['id']}'. Expected an ID that begins with '{prefix}'."
    assert violation.code == "invalid_id_prefix"


@pytest.mark.parametrize("item_id", ["", "fc_a b", "fc_é", "fc_a|b"])
def test_ids_have_letters_numbers_underscores_and_dashes_only(item_id):
    """Other characters and the empty id are rejected."""
    assert get_error_message(CALL_ITEM | {"id": item_id}) == (
        f"Invalid 'input[0].id': '{item_id}'. Expected an ID that contains letters, numbers, underscores, or dashes, "
        "but this value contained additional characters."
    )


@pytest.mark.parametrize("field", ["id", "call_id"])
def test_ids_are_at_most_64_characters_long(field):
    """Item ids and call ids of 65 characters are rejected, 64 are accepted."""
    long = "fc_" + "x" * 62
    violation = check(USER, CALL_ITEM | {field: long}, OUTPUT)
    assert violation.code == "string_above_max_length"
    assert violation.message == (
        f"Invalid 'input[1].{field}': string too long. Expected a string with maximum length 64, "
        "but got a string with length 65 instead."
    )
    assert (
        check(USER, CALL_ITEM | {field: long[:64]}, OUTPUT | ({field: long[:64]} if field == "call_id" else {})) is None
    )


def test_assistant_content_is_output_text():
    """Input text in an assistant message is rejected."""
    wrong = {"role": "assistant", "content": [{"type": "input_text", "text": "Hi"}]}
    assert get_error_message(wrong) == "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."


def test_roles_are_a_closed_set():
    """There is no tool role here."""
    assert get_error_message({"role": "tool", "content": "x"}) == (
        "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
    )


def test_a_call_needs_its_output():
    """Inline, and when the call is in the previous response."""
    violation = check(USER, CALL_ITEM, USER)
    assert (violation.message, violation.param) == (f"No tool output found for function call {CALL}.", "input")
    service_state = build_store(CALL_ITEM, transcript=[USER])
    assert get_error_message(USER, service_state=service_state, previous_response_id="resp_1") == (
        f"No tool output found for function call {CALL}."
    )
    assert check(OUTPUT, service_state=service_state, previous_response_id="resp_1") is None


def test_an_output_needs_its_call():
    """In the input or in the stored items, before the output."""
    expected_message = f"No tool call found for function call output with call_id {CALL}."
    assert get_error_message(USER, OUTPUT) == expected_message
    assert get_error_message(USER, OUTPUT, CALL_ITEM) == expected_message


def test_call_ids_may_recur_in_a_later_turn():
    """Calls pair with the nearest output; a second output for one call is rejected only by an optional rule."""
    assert check(USER, BARE_CALL, OUTPUT, USER, BARE_CALL, OUTPUT) is None
    assert check(USER, BARE_CALL, OUTPUT, OUTPUT) is None
    assert get_error_message(USER, BARE_CALL, OUTPUT, OUTPUT, rules=Rules(is_strict=True)) == (
        f"No tool call found for function call output with call_id {CALL}."
    )


def test_stored_reasoning_needs_the_message_it_led_to():
    """The recorded rejection: reasoning with its id before an assistant message without an id."""
    violation = check(USER, REASONING, RESPONSE, USER)
    assert violation.message == f"Item '{RS}' of type 'reasoning' was provided without its required following item."
    assert (violation.status, violation.param, violation.code) == (400, "input", None)
    assert check(USER, REASONING, OWN_RESPONSE, USER) is None


def test_reasoning_is_paired_by_id_with_the_issued_item():
    """An item in between separates them; a call can be recognised by its call id."""
    service_state = build_store(REASONING, OWN_RESPONSE, CALL_ITEM)
    expected_message = f"Item '{RS}' of type 'reasoning' was provided without its required following item."
    assert check(USER, REASONING, OWN_RESPONSE, CALL_ITEM, OUTPUT, service_state=service_state) is None
    assert (
        get_error_message(USER, REASONING, CALL_ITEM, OWN_RESPONSE, OUTPUT, service_state=service_state)
        == expected_message
    )
    service_state = build_store(REASONING, CALL_ITEM)
    assert check(USER, REASONING, BARE_CALL, OUTPUT, service_state=service_state) is None
    assert (
        get_error_message(USER, REASONING, BARE_CALL, OUTPUT, service_state=service_state, rules=Rules(is_strict=True))
        == expected_message
    )


def test_stored_reasoning_at_the_end_or_before_a_question_is_rejected():
    """No item of the model follows it."""
    expected_message = f"Item '{RS}' of type 'reasoning' was provided without its required following item."
    assert get_error_message(USER, REASONING) == expected_message
    assert get_error_message(USER, REASONING, USER) == expected_message
    assert check(USER, REASONING, USER, store=False) is None
    assert get_error_message(USER, REASONING, USER, store=False, rules=Rules(is_strict=True)) == expected_message


def test_a_dropped_hosted_call_leaves_reasoning_alone():
    """Two consecutive reasoning items are rejected."""
    second = REASONING | {"id": "rs_2", "encrypted_content": sealed.sign_reasoning("rs_2", "more")}
    service_state = build_store(REASONING, CODE, second, OWN_RESPONSE)
    assert check(USER, REASONING, CODE, second, OWN_RESPONSE, USER, service_state=service_state) is None
    assert get_error_message(USER, REASONING, second, OWN_RESPONSE, USER, service_state=service_state) == (
        f"Item '{RS}' of type 'reasoning' was provided without its required following item."
    )


def test_without_store_reasoning_may_precede_items_without_ids():
    """The recorded stateless sequences are accepted; the unrecorded one is rejected only by an optional rule."""
    anonymous = {name: value for name, value in REASONING.items() if name != "id"}
    assert check(USER, REASONING, BARE_CALL, OUTPUT, store=False) is None
    assert check(USER, anonymous, BARE_CALL, OUTPUT, store=False) is None
    assert check(USER, anonymous, RESPONSE, USER, store=False) is None
    assert check(USER, REASONING, RESPONSE, USER, store=False) is None
    assert check(USER, REASONING, RESPONSE, USER, store=False, rules=Rules(is_strict=True))


@pytest.mark.parametrize("item", [CALL_ITEM, OWN_RESPONSE, CODE])
def test_a_stored_item_needs_its_reasoning(item):
    """An item that came with reasoning cannot be replayed alone, unless it was never stored."""
    outputs = [OUTPUT] if item is CALL_ITEM else []
    service_state = build_store(REASONING, item)
    assert get_error_message(USER, item, *outputs, service_state=service_state) == (
        f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item: '{RS}'."
    )
    assert check(USER, REASONING, item, *outputs, service_state=service_state) is None
    assert check(USER, item, *outputs, service_state=build_store(REASONING, item, is_stored=False), store=False) is None


def test_item_ids_are_unique():
    """Twice in the input, or in the input and in the previous response."""
    expected_message = f"Duplicate item found with id {FC}. Remove duplicate items from your input and try again."
    assert get_error_message(USER, CALL_ITEM, OUTPUT, CALL_ITEM, OUTPUT) == expected_message
    service_state = build_store(CALL_ITEM, transcript=[USER])
    assert (
        get_error_message(CALL_ITEM, OUTPUT, service_state=service_state, previous_response_id="resp_1")
        == expected_message
    )


def test_unstored_items_cannot_be_referred_to():
    """By a reference, or by reasoning without its encrypted content."""
    expected_message = (
        f"Item with id '{RS}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input."
    )
    bare_reasoning = REASONING | {"encrypted_content": None}
    violation = check(USER, {"type": "item_reference", "id": RS}, service_state=build_store(REASONING, is_stored=False))
    assert (violation.status, violation.message) == (404, expected_message)
    assert get_error_message(USER, bare_reasoning, OWN_RESPONSE) == expected_message
    service_state = build_store(REASONING, OWN_RESPONSE)
    assert check(USER, bare_reasoning, OWN_RESPONSE, service_state=service_state) is None
    references = [{"type": "item_reference", "id": RS}, {"id": MSG}]
    assert check(USER, *references, USER, service_state=service_state) is None


def test_encrypted_content_must_be_unmodified():
    """A damaged value is rejected, with the item's id if it has one; so is the value of an `added` event."""
    damaged_value = REASONING["encrypted_content"][:-8] + "AAAAAAA="
    violation = check(USER, REASONING | {"encrypted_content": damaged_value}, OWN_RESPONSE)
    assert violation.code == "invalid_encrypted_content"
    assert violation.message == (
        f"The encrypted content for item {RS} could not be verified. "
        "Reason: Encrypted content could not be decrypted or parsed."
    )
    anonymous = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAforeign"}
    assert get_error_message(USER, anonymous, RESPONSE, store=False) == (
        "The encrypted content gAAA...eign could not be verified."
    )
    assert check(USER, REASONING | {"encrypted_content": sealed.unsigned_value(RS)}, OWN_RESPONSE)


def test_an_unknown_previous_response_is_rejected():
    """A response that was not issued, or not stored."""
    violation = check(USER, previous_response_id="resp_gone")
    assert violation.message == "Previous response with id 'resp_gone' not found."
    assert (violation.code, violation.param) == ("previous_response_not_found", "previous_response_id")
    assert check(USER, previous_response_id="resp_1", service_state=build_store(OWN_RESPONSE, is_stored=False))


def test_a_conversation_must_exist_and_excludes_a_previous_response():
    """A request may use only one of the two."""
    service_state = build_store(OWN_RESPONSE)
    service_state.conversations["conv_1"] = Transcript()
    assert check(USER, service_state=service_state, conversation="conv_1") is None
    assert check(USER, service_state=service_state, conversation={"id": "conv_2"}).status == 404
    both = check(USER, service_state=service_state, conversation="conv_1", previous_response_id="resp_1")
    assert both.code == "mutually_exclusive_parameters"


def test_containers_expire():
    """After twenty idle minutes a container can neither be used nor replayed."""
    service_state = build_store(CODE)
    late = 20 * 60 + 1.0
    tools = [{"type": "code_interpreter", "container": CNTR}]
    assert check(USER, CODE, OWN_RESPONSE, USER, service_state=service_state, tools=tools) is None
    assert get_error_message(USER, service_state=service_state, tools=tools, now=late) == "Container is expired."
    assert get_error_message(USER, CODE, service_state=service_state, now=late) == f"Expected container_id: {CNTR}"


def test_invalid_values_of_the_request_are_rejected():
    """Unknown model, negative temperature, missing model, missing input, invalid JSON."""
    violation = check(model="unknown-model")
    assert (violation.message, violation.code, violation.param) == (
        "The requested model 'unknown-model' does not exist.",
        "model_not_found",
        "model",
    )
    violation = check(temperature=-1)
    assert violation.code == "decimal_below_min_value"
    assert violation.message == (
        "Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -1 instead."
    )
    assert get_error_message(model=None) == "Missing required parameter: 'model'."
    assert check_request({"model": "practice"}, Store(), Rules(), now=0).param == "input"
    assert "could not parse the JSON" in check_request(None, Store(), Rules(), now=0).message


def test_values_of_the_wrong_type_are_rejected():
    """Parameters, items and content."""
    assert get_error_message(tools={}) == "Invalid type for 'tools': expected an array, but got an object instead."
    assert get_error_message("Hello") == "Invalid type for 'input[0]': expected an object, but got a string instead."
    assert get_error_message(model=5) == "Invalid type for 'model': expected a string, but got an integer instead."
    content = "Invalid type for 'input[0].content': expected one of string or array, but got null instead."
    assert get_error_message({"role": "user", "content": None}) == content


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from([RS, FC, MSG, CALL])
NAMES = st.sampled_from(["id", "type", "role", "content", "call_id", "summary", "encrypted_content", "container", "x"])
JSON = st.recursive(
    SCALARS, lambda json_values: st.lists(json_values, max_size=3) | st.dictionaries(NAMES, json_values, max_size=4)
)
ITEM = st.dictionaries(NAMES, JSON) | st.builds(
    lambda kind, other_fields: {"type": kind, **other_fields},
    st.sampled_from(sorted(FIELDS)),
    st.dictionaries(NAMES, JSON),
)
BODY = st.dictionaries(st.sampled_from(sorted(PARAMETERS)), JSON) | st.builds(
    lambda items, other_fields: {"model": "m", "input": items, **other_fields},
    st.lists(ITEM | st.sampled_from([USER, REASONING, CALL_ITEM, OUTPUT, OWN_RESPONSE, CODE]), max_size=4),
    st.dictionaries(st.sampled_from(["tools", "conversation", "previous_response_id", "store", "include"]), JSON),
)


@settings(deadline=None)
@given(BODY | JSON)
def test_any_json_is_either_accepted_or_rejected(body):
    """The rules never raise."""
    violation = check_request(body, build_store(REASONING, OWN_RESPONSE), Rules(is_strict=True), now=0)
    assert violation is None or violation.status in {400, 404}


APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "ask", "server_label": "wiki", "arguments": "{}"}
APPROVED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


def test_an_approval_request_needs_its_approval():
    """Inline or in the stored items, with the API's error message; the approval may be a denial."""
    expected_message = "The following MCP approval requests do not have an approval: mcpr_1"
    assert get_error_message(USER, APPROVAL, USER) == expected_message
    assert (
        get_error_message(USER, service_state=build_store(APPROVAL), previous_response_id="resp_1") == expected_message
    )
    assert check(USER, APPROVAL, APPROVED) is None
    assert (
        check(APPROVED | {"approve": False}, service_state=build_store(APPROVAL), previous_response_id="resp_1") is None
    )


def test_a_custom_call_needs_its_output():
    """Like a function call, inline or in the stored items."""
    call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": CALL, "name": "grep", "input": "x"}
    output = {"type": "custom_tool_call_output", "call_id": CALL, "output": "found"}
    expected_message = f"No tool output found for custom tool call {CALL}."
    assert get_error_message(USER, call, USER) == expected_message
    assert get_error_message(USER, service_state=build_store(call), previous_response_id="resp_1") == expected_message
    assert get_error_message(USER, output) == f"No tool call found for custom tool call output with call_id {CALL}."
    assert check(USER, call, output) is None


@pytest.mark.parametrize("name", ["", None, "no such tool", "x" * 129, "say\n"])
def test_the_name_of_a_call_has_letters_digits_underscores_and_dashes(name):
    """The API rejects other names, also of its own calls."""
    where = "Invalid 'input[1].name': string does not match pattern."
    assert get_error_message(USER, CALL_ITEM | {"name": name}, OUTPUT).startswith(where)
    assert check(USER, CALL_ITEM | {"name": "x" * 128}, OUTPUT) is None


def test_encrypted_content_of_another_key_is_rejected():
    """Values issued before the key changed are rejected."""
    service_state = build_store(REASONING, OWN_RESPONSE, is_stored=False)
    assert check(USER, REASONING, OWN_RESPONSE, USER, store=False, service_state=service_state) is None
    service_state.expire_encrypted()
    assert "could not be verified" in get_error_message(
        USER, REASONING, OWN_RESPONSE, USER, store=False, service_state=service_state
    )
