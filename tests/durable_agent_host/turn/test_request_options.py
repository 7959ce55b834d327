"""Options that clients set for a turn."""

from agent_framework import ChatOptions

from durable_agent_host.turn.request_options import check_options

FIT = {
    "model": ["gpt-5"],
    "temperature": [0, 0.5, 2],
    "top_p": [1, 0.1],
    "max_tokens": [1, 128_000],
    "stop": ["END", ["END", "STOP"], []],
    "seed": [0, -1, 2**63 - 1],
    "logit_bias": [{}, {"50256": -100, "7": 0.5}],
    "frequency_penalty": [-2, 0.5],
    "presence_penalty": [-2, 0.5],
    "allow_multiple_tool_calls": [True, False],
    "metadata": [{}, {"team": "blue"}],
    "user": ["u-1"],
    "store": [True, False],
}
UNFIT = {
    "model": [5, ["gpt-5"]],
    "temperature": ["x", True, 1e308, 10**400, {}],
    "top_p": ["1", False],
    "max_tokens": ["5", True, 0, -5, 1.5, 10**30, 10**400],
    "stop": [5, ["END", 5], {}],
    "seed": ["1", 1.5, True, 2**63],
    "logit_bias": [[], {"7": "much"}, {"7": True}],
    "frequency_penalty": ["x", True],
    "presence_penalty": [[1], -1e300],
    "allow_multiple_tool_calls": [1, "true"],
    "metadata": ["team", ["team"]],
    "user": [7, {}],
    "store": [0, "false"],
}
FOR_APPS = {"tools", "tool_choice", "response_format", "conversation_id", "instructions"}


def test_every_option_of_the_framework_is_known():
    """A later version of the framework with one more option is noticed."""
    assert set(ChatOptions.__annotations__) - FOR_APPS == FIT.keys() == UNFIT.keys()


def test_an_option_that_only_a_client_knows_is_passed_on():
    """Its values are the client's."""
    options = {"reasoning": {"effort": "low"}, "top_k": "many"}
    assert check_options(options, {"reasoning": True, "top_k": True}) == options
