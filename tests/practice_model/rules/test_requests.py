"""Every rule of the live API with its exact message, and what must not be refused."""

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
ANSWER = {"role": "assistant", "content": [{"type": "output_text", "text": "Hi", "annotations": []}], "type": "message"}
OWN_ANSWER = ANSWER | {"id": MSG, "status": "completed"}
REASONING = {"type": "reasoning", "id": RS, "summary": [], "encrypted_content": sealed.sign_reasoning(RS, "thought")}
CALLING = {"type": "function_call", "id": FC, "call_id": CALL, "name": "echo", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": CALL, "output": "done"}
CODE = {"type": "code_interpreter_call", "id": CI, "code": "1", "container_id": CNTR, "outputs": None}
CODE |= {"status": "completed"}
BARE_CALL = {name: value for name, value in CALLING.items() if name != "id"}


def check(*items, known=None, rules=None, now=0.0, **body):
    body = {"model": "practice", "input": list(items) or "Hello", **body}
    return check_request(body, known or Store(), rules or Rules(), now=now)


def message(*items, **kwargs):
    refusal = check(*items, **kwargs)
    assert refusal, "the request was accepted"
    return refusal.message


def given_out(*output, is_stored=True, transcript=(), response_id="resp_1"):
    store = Store()
    response = {"id": response_id, "output": list(output)}
    store.record_response(response, is_stored=is_stored, transcript=list(transcript), events=[], now=0.0)
    return store


def test_a_plain_question_is_accepted():
    """A string, a message without type and a typed message are all fine."""
    assert check() is None
    assert check(USER) is None
    assert check({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}) is None


def test_every_refusal_has_the_error_body_of_the_api():
    """The body has message, type, param and code."""
    refusal = check(USER | {"status_code": 1})
    assert refusal.status == 400
    assert refusal.body == {
        "error": {
            "message": "Unknown parameter: 'input[0].status_code'.",
            "type": "invalid_request_error",
            "param": "input[0].status_code",
            "code": "unknown_parameter",
        }
    }


def test_a_null_status_on_reasoning_is_an_unknown_parameter():
    """The field that clients add by dumping None is refused."""
    assert message(USER, REASONING | {"status": None}, OWN_ANSWER) == "Unknown parameter: 'input[1].status'."


def test_unknown_parameters_of_the_request_are_refused():
    """Chat-completions parameters are no parameters here."""
    assert message(seed=1) == "Unknown parameter: 'seed'."


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
    """A required field that is absent is named with its place."""
    refusal = check(item)
    assert refusal.message == f"Missing required parameter: 'input[0].{field}'."
    assert refusal.code == "missing_required_parameter"


def test_a_code_interpreter_tool_needs_its_container():
    """The container of the tool is required."""
    assert message(tools=[{"type": "code_interpreter"}]) == "Missing required parameter: 'tools[0].container'."
    assert check(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}]) is None
    assert message(tools=[{"type": "function"}]) == "Missing required parameter: 'tools[0].name'."


@pytest.mark.parametrize(
    ("item", "prefix"), [(CALLING | {"id": "toolu_1"}, "fc"), (REASONING | {"id": "msg_1"}, "rs"), (OWN_ANSWER, "msg")]
)
def test_ids_begin_with_the_prefix_of_their_type(item, prefix):
    """Another provider's id, or that of another item type, is refused."""
    item = item | {"id": "toolu_1" if prefix == "msg" else item["id"]}
    refusal = check(item)
    assert refusal.message == f"Invalid 'input[0].id': '{item['id']}'. Expected an ID that begins with '{prefix}'."
    assert refusal.code == "invalid_id_prefix"


@pytest.mark.parametrize("item_id", ["", "fc_a b", "fc_é", "fc_a|b"])
def test_ids_have_letters_numbers_underscores_and_dashes_only(item_id):
    """Other characters, and the empty id, are refused."""
    assert message(CALLING | {"id": item_id}) == (
        f"Invalid 'input[0].id': '{item_id}'. Expected an ID that contains letters, numbers, underscores, or dashes, "
        "but this value contained additional characters."
    )


@pytest.mark.parametrize("field", ["id", "call_id"])
def test_ids_are_at_most_64_characters_long(field):
    """Item ids and call ids of 65 characters are refused, 64 are fine."""
    long = "fc_" + "x" * 62
    refusal = check(USER, CALLING | {field: long}, OUTPUT)
    assert refusal.code == "string_above_max_length"
    assert refusal.message == (
        f"Invalid 'input[1].{field}': string too long. Expected a string with maximum length 64, "
        "but got a string with length 65 instead."
    )
    assert (
        check(USER, CALLING | {field: long[:64]}, OUTPUT | ({field: long[:64]} if field == "call_id" else {})) is None
    )


def test_call_ids_of_other_providers_are_fine():
    """A call id has no prefix of its own."""
    assert check(USER, BARE_CALL | {"call_id": "toolu_01"}, OUTPUT | {"call_id": "toolu_01"}) is None


def test_assistant_content_is_output_text():
    """Input text in an assistant message is refused."""
    wrong = {"role": "assistant", "content": [{"type": "input_text", "text": "Hi"}]}
    assert message(wrong) == "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."


def test_roles_are_a_closed_set():
    """There is no tool role here."""
    assert message({"role": "tool", "content": "x"}) == (
        "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
    )


def test_assistant_text_is_accepted_in_every_recorded_form():
    """With and without id, status, annotations and type, and as a plain string."""
    part = {"type": "output_text", "text": "Hi"}
    assert check(USER, OWN_ANSWER, USER) is None
    assert check(USER, ANSWER, USER) is None
    assert check(USER, {"role": "assistant", "content": [part]}, USER) is None
    assert check(USER, {"role": "assistant", "content": "Hi"}, USER) is None
    assert message(USER, {"role": "assistant", "content": [part]}, rules=Rules(annotations_required=True)) == (
        "Missing required parameter: 'input[1].content[0].annotations'."
    )


def test_a_call_needs_its_output():
    """Inline, and when the call is in the previous response."""
    refusal = check(USER, CALLING, USER)
    assert (refusal.message, refusal.param) == (f"No tool output found for function call {CALL}.", "input")
    known = given_out(CALLING, transcript=[USER])
    assert message(USER, known=known, previous_response_id="resp_1") == (
        f"No tool output found for function call {CALL}."
    )
    assert check(OUTPUT, known=known, previous_response_id="resp_1") is None


def test_an_output_needs_its_call():
    """In the input or in what the service keeps, before the output."""
    expected = f"No tool call found for function call output with call_id {CALL}."
    assert message(USER, OUTPUT) == expected
    assert message(USER, OUTPUT, CALLING) == expected


def test_parallel_calls_take_their_outputs_in_any_order():
    """One reasoning item covers both calls."""
    second = BARE_CALL | {"call_id": "call_2"}
    outputs = [OUTPUT | {"call_id": "call_2"}, OUTPUT]
    assert check(USER, REASONING, CALLING, second, *outputs) is None


def test_call_ids_may_come_again_in_a_later_turn():
    """Calls pair with the nearest output; a second output for one call is refused on request only."""
    assert check(USER, BARE_CALL, OUTPUT, USER, BARE_CALL, OUTPUT) is None
    assert check(USER, BARE_CALL, OUTPUT, OUTPUT) is None
    assert message(USER, BARE_CALL, OUTPUT, OUTPUT, rules=Rules(one_output_per_call=True)) == (
        f"No tool call found for function call output with call_id {CALL}."
    )


def test_stored_reasoning_needs_the_message_it_led_to():
    """The recorded refusal: reasoning with its id before an assistant message without one."""
    refusal = check(USER, REASONING, ANSWER, USER)
    assert refusal.message == f"Item '{RS}' of type 'reasoning' was provided without its required following item."
    assert (refusal.status, refusal.param, refusal.code) == (400, "input", None)
    assert check(USER, REASONING, OWN_ANSWER, USER) is None


def test_reasoning_is_paired_by_id_with_the_item_that_was_given_out():
    """Another item in between separates them; a call may be recognised by its call id."""
    known = given_out(REASONING, OWN_ANSWER, CALLING)
    expected = f"Item '{RS}' of type 'reasoning' was provided without its required following item."
    assert check(USER, REASONING, OWN_ANSWER, CALLING, OUTPUT, known=known) is None
    assert message(USER, REASONING, CALLING, OWN_ANSWER, OUTPUT, known=known) == expected
    known = given_out(REASONING, CALLING)
    assert check(USER, REASONING, BARE_CALL, OUTPUT, known=known) is None
    assert message(USER, REASONING, BARE_CALL, OUTPUT, known=known, rules=Rules(call_needs_id=True)) == expected


def test_reasoning_at_the_end_or_before_a_question_is_refused_when_stored():
    """Nothing that a model made follows it."""
    expected = f"Item '{RS}' of type 'reasoning' was provided without its required following item."
    assert message(USER, REASONING) == expected
    assert message(USER, REASONING, USER) == expected
    assert check(USER, REASONING, USER, store=False) is None
    assert message(USER, REASONING, USER, store=False, rules=Rules(unstored_needs_follower=True)) == expected


def test_a_dropped_hosted_call_leaves_reasoning_alone():
    """Two reasoning items in a row are refused by default; the rule can be switched off."""
    second = REASONING | {"id": "rs_2", "encrypted_content": sealed.sign_reasoning("rs_2", "more")}
    known = given_out(REASONING, CODE, second, OWN_ANSWER)
    assert check(USER, REASONING, CODE, second, OWN_ANSWER, USER, known=known) is None
    assert message(USER, REASONING, second, OWN_ANSWER, USER, known=known) == (
        f"Item '{RS}' of type 'reasoning' was provided without its required following item."
    )
    lenient = Rules(dropped_hosted_call=False)
    assert check(USER, REASONING, second, OWN_ANSWER, USER, known=known, rules=lenient) is None


def test_without_store_reasoning_may_stand_before_items_without_ids():
    """The stateless forms that were recorded are accepted; the unrecorded one can be refused on request."""
    anonymous = {name: value for name, value in REASONING.items() if name != "id"}
    assert check(USER, REASONING, BARE_CALL, OUTPUT, store=False) is None
    assert check(USER, anonymous, BARE_CALL, OUTPUT, store=False) is None
    assert check(USER, anonymous, ANSWER, USER, store=False) is None
    assert check(USER, REASONING, ANSWER, USER, store=False) is None
    assert check(USER, REASONING, ANSWER, USER, store=False, rules=Rules(unstored_message_needs_id=True))


@pytest.mark.parametrize("item", [CALLING, OWN_ANSWER, CODE])
def test_a_stored_item_needs_its_reasoning(item):
    """An item that came with reasoning cannot be replayed alone, unless it was never stored."""
    rest = [OUTPUT] if item is CALLING else []
    known = given_out(REASONING, item)
    assert message(USER, item, *rest, known=known) == (
        f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item: '{RS}'."
    )
    assert check(USER, REASONING, item, *rest, known=known) is None
    assert check(USER, item, *rest, known=given_out(REASONING, item, is_stored=False), store=False) is None


def test_an_item_id_comes_once():
    """Twice in the input, or in the input and in the previous response."""
    expected = f"Duplicate item found with id {FC}. Remove duplicate items from your input and try again."
    assert message(USER, CALLING, OUTPUT, CALLING, OUTPUT) == expected
    known = given_out(CALLING, transcript=[USER])
    assert message(CALLING, OUTPUT, known=known, previous_response_id="resp_1") == expected


def test_unstored_items_cannot_be_referred_to():
    """By a reference, or by reasoning without its encrypted content."""
    expected = (
        f"Item with id '{RS}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input."
    )
    bare = REASONING | {"encrypted_content": None}
    refusal = check(USER, {"type": "item_reference", "id": RS}, known=given_out(REASONING, is_stored=False))
    assert (refusal.status, refusal.message) == (404, expected)
    assert message(USER, bare, OWN_ANSWER) == expected
    known = given_out(REASONING, OWN_ANSWER)
    assert check(USER, bare, OWN_ANSWER, known=known) is None
    references = [{"type": "item_reference", "id": RS}, {"id": MSG}]
    assert check(USER, *references, USER, known=known) is None


def test_encrypted_content_must_come_back_as_it_was():
    """A damaged value is refused, with the item's id if it has one; the value of an opened item is no good either."""
    damaged = REASONING["encrypted_content"][:-8] + "AAAAAAA="
    refusal = check(USER, REASONING | {"encrypted_content": damaged}, OWN_ANSWER)
    assert refusal.code == "invalid_encrypted_content"
    assert refusal.message == (
        f"The encrypted content for item {RS} could not be verified. "
        "Reason: Encrypted content could not be decrypted or parsed."
    )
    anonymous = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAforeign"}
    assert message(USER, anonymous, ANSWER, store=False) == ("The encrypted content gAAA...eign could not be verified.")
    assert check(USER, REASONING | {"encrypted_content": sealed.unsigned_value(RS)}, OWN_ANSWER)


def test_an_unknown_previous_response_is_refused():
    """One that was never given out, or not stored."""
    refusal = check(USER, previous_response_id="resp_gone")
    assert refusal.message == "Previous response with id 'resp_gone' not found."
    assert (refusal.code, refusal.param) == ("previous_response_not_found", "previous_response_id")
    assert check(USER, previous_response_id="resp_1", known=given_out(OWN_ANSWER, is_stored=False))


def test_a_conversation_must_exist_and_excludes_a_previous_response():
    """Only one of the two ways to continue may be used."""
    known = given_out(OWN_ANSWER)
    known.conversations["conv_1"] = Transcript()
    assert check(USER, known=known, conversation="conv_1") is None
    assert check(USER, known=known, conversation={"id": "conv_2"}).status == 404
    both = check(USER, known=known, conversation="conv_1", previous_response_id="resp_1")
    assert both.code == "mutually_exclusive_parameters"


def test_containers_expire():
    """After twenty idle minutes a container can be neither named nor replayed; replaying is fine before."""
    known = given_out(CODE)
    late = 20 * 60 + 1.0
    tools = [{"type": "code_interpreter", "container": CNTR}]
    assert check(USER, CODE, OWN_ANSWER, USER, known=known, tools=tools) is None
    assert message(USER, known=known, tools=tools, now=late) == "Container is expired."
    assert message(USER, CODE, known=known, now=late) == f"Expected container_id: {CNTR}"


def test_bad_values_of_the_request_are_refused():
    """Unknown model, temperature below zero, no model, no input, no JSON."""
    refusal = check(model="unknown-model")
    assert (refusal.message, refusal.code, refusal.param) == (
        "The requested model 'unknown-model' does not exist.",
        "model_not_found",
        "model",
    )
    refusal = check(temperature=-1)
    assert refusal.code == "decimal_below_min_value"
    assert refusal.message == (
        "Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -1 instead."
    )
    assert message(model=None) == "Missing required parameter: 'model'."
    assert check_request({"model": "practice"}, Store(), Rules(), now=0).param == "input"
    assert "could not parse the JSON" in check_request(None, Store(), Rules(), now=0).message


def test_values_of_another_type_are_refused():
    """Parameters, items and content."""
    assert message(tools={}) == "Invalid type for 'tools': expected an array, but got an object instead."
    assert message("Hello") == "Invalid type for 'input[0]': expected an object, but got a string instead."
    assert message(model=5) == "Invalid type for 'model': expected a string, but got an integer instead."
    content = "Invalid type for 'input[0].content': expected one of string or array, but got null instead."
    assert message({"role": "user", "content": None}) == content


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from([RS, FC, MSG, CALL])
NAMES = st.sampled_from(["id", "type", "role", "content", "call_id", "summary", "encrypted_content", "container", "x"])
JSON = st.recursive(SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=4))
ITEM = st.dictionaries(NAMES, JSON) | st.builds(
    lambda kind, rest: {"type": kind, **rest}, st.sampled_from(sorted(FIELDS)), st.dictionaries(NAMES, JSON)
)
BODY = st.dictionaries(st.sampled_from(sorted(PARAMETERS)), JSON) | st.builds(
    lambda items, rest: {"model": "m", "input": items, **rest},
    st.lists(ITEM | st.sampled_from([USER, REASONING, CALLING, OUTPUT, OWN_ANSWER, CODE]), max_size=4),
    st.dictionaries(st.sampled_from(["tools", "conversation", "previous_response_id", "store", "include"]), JSON),
)


@settings(deadline=None)
@given(BODY | JSON)
def test_any_json_is_either_accepted_or_refused(body):
    """The rules never fail themselves."""
    refusal = check_request(body, given_out(REASONING, OWN_ANSWER), Rules.strict(), now=0)
    assert refusal is None or refusal.status in {400, 404}


def test_strict_rules_have_every_switch_on():
    """The strict set leaves nothing off."""
    assert all(vars(Rules.strict()).values())


APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "ask", "server_label": "wiki", "arguments": "{}"}
APPROVED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


def test_a_request_for_approval_needs_its_answer():
    """Inline or kept, with the API's words; the answer may say no."""
    words = "The following MCP approval requests do not have an approval: mcpr_1"
    assert message(USER, APPROVAL, USER) == words
    assert message(USER, known=given_out(APPROVAL), previous_response_id="resp_1") == words
    assert check(USER, APPROVAL, APPROVED) is None
    assert check(APPROVED | {"approve": False}, known=given_out(APPROVAL), previous_response_id="resp_1") is None


def test_a_custom_call_needs_its_output():
    """As a function call does, inline or kept."""
    call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": CALL, "name": "grep", "input": "x"}
    output = {"type": "custom_tool_call_output", "call_id": CALL, "output": "found"}
    words = f"No tool output found for custom tool call {CALL}."
    assert message(USER, call, USER) == words
    assert message(USER, known=given_out(call), previous_response_id="resp_1") == words
    assert message(USER, output) == f"No tool call found for custom tool call output with call_id {CALL}."
    assert check(USER, call, output) is None


def test_encrypted_content_of_another_key_is_refused():
    """What was given out before the key changed, and nothing that came after."""
    known = given_out(REASONING, OWN_ANSWER, is_stored=False)
    assert check(USER, REASONING, OWN_ANSWER, USER, store=False, known=known) is None
    known.expire_encrypted()
    assert "could not be verified" in message(USER, REASONING, OWN_ANSWER, USER, store=False, known=known)


@pytest.mark.parametrize("name", ["", None, "no such tool", "x" * 129, "say\n"])
def test_the_name_of_a_call_has_letters_digits_underscores_and_dashes(name):
    """The API refuses others, also of calls that it made itself."""
    where = "Invalid 'input[1].name': string does not match pattern."
    assert message(USER, CALLING | {"name": name}, OUTPUT).startswith(where)
    assert check(USER, CALLING | {"name": "x" * 128}, OUTPUT) is None
