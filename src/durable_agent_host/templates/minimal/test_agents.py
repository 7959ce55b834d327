"""What the agent does. The practice model calls a tool when a message names it and its arguments."""


def test_it_answers_with_its_tool(app):
    answer = app.http("POST", "/api/agents/Helper/run", {"message": 'Call weather with {"city": "Rome"}'})
    assert "It is sunny in Rome." in answer.json()["response"]


def test_it_continues_a_conversation(app, model):
    model.plan({"text": "Hello, Ada."}, {"text": "You are Ada."})
    url = "/api/agents/Helper/run?thread_id=ada"
    assert app.http("POST", url, {"message": "I am Ada."}).json()["response"] == "Hello, Ada."
    assert app.http("POST", url, {"message": "Who am I?"}).json()["response"] == "You are Ada."
