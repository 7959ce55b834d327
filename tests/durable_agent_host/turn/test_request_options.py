"""Options that clients set for a turn."""

from durable_agent_host.turn.request_options import check_options


def test_an_allowed_option_is_passed_on():
    """Its values are the client's."""
    options = {"reasoning": {"effort": "low"}, "top_k": "many"}
    assert check_options(options, {"reasoning": True, "top_k": True}) == options
