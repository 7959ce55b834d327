"""What the desk does. The practice model calls a tool when a message names it and its arguments."""

RUN = "/api/agents/Desk/run"


def test_it_looks_orders_up(app):
    answer = app.http("POST", RUN, {"message": 'Call find_order with {"order": "A-2"}'})
    assert "on its way" in answer.json()["response"]


def ask_for_a_refund(app):
    answer = app.http("POST", RUN, {"message": 'Call refund with {"order": "A-1", "amount": 39}'})
    turn = answer.json()
    assert (answer.status, turn["status"]) == (202, "waiting")
    [call] = turn["pending_calls"]
    return f"/api/agents/Desk/sessions/{turn['session_id']}/turns/{turn['turn_id']}", call["call_id"]


def test_a_refund_waits_for_a_person(app):
    turn_url, call_id = ask_for_a_refund(app)
    app.http("POST", f"{turn_url}/answers", {"call_id": call_id, "approved": True})
    assert "39.00 were paid back for order A-1." in str(app.http("GET", turn_url).json())


def test_a_refund_that_is_denied_is_not_paid(app, capfd):
    turn_url, call_id = ask_for_a_refund(app)
    app.http("POST", f"{turn_url}/answers", {"call_id": call_id, "approved": False})
    assert app.http("GET", turn_url).json()["status"] == "completed"
    assert "Paying" not in capfd.readouterr().out
