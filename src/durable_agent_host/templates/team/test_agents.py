"""What the team does. The practice model takes the steps that a test plans, for the agent that it names."""


def test_the_lead_asks_the_researcher(app, model):
    question = {"name": "Researcher", "arguments": {"task": "Look tea up."}}
    model.plan({"calls": [question]}, {"text": "People drink it."}, when={"user_text": "Tell me about tea."})
    lookup = {"name": "search", "arguments": {"topic": "tea"}}
    model.plan({"calls": [lookup]}, {"text": "It is a drink."}, when={"user_text": "Look tea up."})
    answer = app.http("POST", "/api/agents/Lead/run", {"message": "Tell me about tea."})
    assert answer.json()["response"] == "People drink it."
    assert "most widely consumed" in str([request["body"]["input"] for request in model.requests()])


def test_a_report_is_improved_once(app, model):
    model.plan({"text": "Tea is hot."}, when={"user_text": "Write about"})
    model.plan({"text": "Too short."}, when={"user_text": "Tea is hot."})
    model.plan({"text": "Tea is hot and wet."}, when={"user_text": "Improve it: Too short."})
    assert app.start("report", {"topic": "tea"}).result() == "Tea is hot and wet."
