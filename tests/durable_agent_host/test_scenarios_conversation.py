"""Conversations over HTTP whose host is killed between the turns: the model sees what it would have seen."""

import json

from tests.kit import ROOT


def items(request, kind):
    """Pick the input items of a type from a request that the model received."""
    return [item for item in request["body"]["input"] if item.get("type") == kind]


def items_and_replay(request, output, kind):
    """Pick the items of a type that a response gave out, and their replay in a request."""
    return [item for item in output if item["type"] == kind], items(request, kind)


def test_argument_text_reaches_the_model_byte_for_byte(lives, model):
    """However the model wrote its arguments, it reads the same characters after a crash."""
    texts = [
        '{"text":"a"}',
        '{ "text" : "b" }',
        '{"text": "gr\\u00f6\\u00dfe"}',
        '{"text":"größe 😀"}',
        '{\n"text":"e"}',
    ]
    model.plan({"calls": [{"name": "echo", "arguments": text} for text in texts]}, {"text": "done"}, {"text": "again"})
    life = lives(ROOT)
    first = life.host.run("BugRepro", {"message": "Go"})
    assert first.status_code == 200, first.text
    second = life.crash().run("BugRepro", {"message": "On", "session_id": first.json()["session_id"]})
    assert second.status_code == 200, second.text
    first_request, second_request, third_request = model.requests()
    assert [item["arguments"] for item in first_request["output"]] == texts
    for request in (second_request, third_request):
        original_calls, replayed_calls = items_and_replay(request, first_request["output"], "function_call")
        assert [(c["id"], c["call_id"], c["arguments"]) for c in replayed_calls] == [
            (c["id"], c["call_id"], c["arguments"]) for c in original_calls
        ]
        results = items(request, "function_call_output")
        assert [result["output"] for result in results] == ["a", "b", "größe", "größe 😀", "e"]
        assert [result["call_id"] for result in results] == [call["call_id"] for call in original_calls]


def test_sequential_tool_rounds_of_a_reasoning_model_can_be_continued(lives, model):
    """Two tool rounds in one turn, and the next turn is accepted after a crash, with and without a service store."""
    for agent in ("Thinker", "KeptThinker"):
        model.reset()
        rounds = [{"reasoning": "first", "calls": [{"name": "look_up", "arguments": {"city": "Oslo"}}]}]
        rounds += [{"reasoning": "then", "calls": [{"name": "look_up", "arguments": {"city": "Rome"}}]}]
        model.plan(*rounds, {"reasoning": "so", "text": "Rain in both."})
        life = lives()
        first = life.host.run(agent, {"message": "Compare the weather"})
        assert first.status_code == 200, first.text
        second = life.crash().run(agent, {"message": "Thanks", "session_id": first.json()["session_id"]})
        assert second.status_code == 200, second.text
        assert all(request["status"] == 200 for request in model.requests())
        life.host.kill()


def test_a_failed_turn_leaves_no_trace_in_the_conversation(lives, model):
    """The model never sees the message or the error of a turn that failed, and the session says how the turn ended."""
    life = lives()
    first = life.host.run("Ledger", {"message": "Hello"})
    session = first.json()["session_id"]
    before = life.host.session("Ledger", session)
    model.plan({"error": {"status": 400, "message": "The request is refused."}})
    failed_response = life.crash().run("Ledger", {"message": "Break", "session_id": session})
    assert failed_response.status_code == 502, failed_response.text
    after = life.host.session("Ledger", session)
    assert after["messages"] == before["messages"]
    assert [turn["status"] for turn in after["turns"]] == ["completed", "failed"]
    assert life.host.turn(failed_response)["status"] == "failed"
    third = life.crash().run("Ledger", {"message": "Go on", "session_id": session})
    assert third.status_code == 200, third.text
    assert "Break" not in json.dumps(model.requests()[-1]["body"])
    assert "refused" not in json.dumps(model.requests()[-1]["body"])
