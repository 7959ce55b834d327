"""The demo's messages to each agent, and the texts that the last response must contain. Data only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Conversation:
    """One conversation with one agent.

    Attributes:
        agent: the agent's name in function_app.py.
        messages: the user's messages, one for each turn.
        expected_texts: texts that the last response must contain; they are only in earlier turns.
        recordings: recorded streams for the first turn's model calls, relative to the recordings folder.
    """

    agent: str
    messages: tuple[str, ...]
    expected_texts: tuple[str, ...] = ()
    recordings: tuple[str, ...] = ()


CONVERSATIONS = (
    Conversation(
        "BugRepro",
        ("Please echo 'hello world'", "Now echo 'goodbye'", "What did I ask you to echo so far?"),
        expected_texts=("hello world", "goodbye"),
    ),
    Conversation(
        "Arithmetic",
        (
            (
                'Call calculator with {"a": 12, "b": 7, "op": "add"}, calculator with {"a": 19, "b": 3, "op": '
                '"multiply"} and calculator with {"a": 57, "b": 10, "op": "multiply"}'
            ),
            "Which results did you get before?",
        ),
        expected_texts=("19", "57", "570"),
    ),
    Conversation(
        "Analyst",
        ("Analyse the temperatures of the three weather stations", "Which readings did you use before?"),
        expected_texts=("Analyse the temperatures",),
    ),
)

RECORDED = (
    Conversation(
        "Arithmetic",
        ("Add 12 and 7, multiply by 3, then by 10", "Which results did you get before?"),
        expected_texts=("570",),
        recordings=tuple(f"multiturn/four-turns-encrypted-stream/0{n}" for n in (1, 2, 3, 4)),
    ),
    Conversation(
        "Analyst",
        ("Simulate rolling two dice 10,000 times", "Which numbers did you use before?"),
        expected_texts=("Simulate rolling two dice",),
        recordings=("ci-three-calls-logs-citation",),
    ),
    Conversation(
        "Analyst",
        ("Plot the data", "What did the plot show before?"),
        expected_texts=("Plot the data",),
        recordings=("ci-image-output-encrypted-reasoning",),
    ),
)
