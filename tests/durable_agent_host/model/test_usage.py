"""Token counts without figures that count nothing."""

import pytest

from durable_agent_host.codec.content import decode_usage
from durable_agent_host.model.budget import known_counts
from durable_agent_host.turn.budget_checks import usage_of_response

ODD = [float("inf"), float("nan"), -1, 10**30, 1e300]


@pytest.mark.parametrize("odd", ODD)
def test_odd_figures_are_left_out_and_everything_else_stays(odd: float):
    """Also within what a service reports besides the framework's counts."""
    usage = {"input_token_count": odd, "output_token_count": 3, "x.tokens": odd, "x.tier": "fast", "x.more": {"n": odd}}
    assert known_counts(usage) == {"output_token_count": 3, "x.tier": "fast"}
    assert known_counts({"total_token_count": "many", "x.more": {"n": [1, None, True]}}) == {
        "x.more": {"n": [1, None, True]}
    }
    assert known_counts(None) == {}


@pytest.mark.parametrize("odd", ODD)
def test_records_that_have_such_figures_are_readable(odd: float):
    """Upstream stores what came."""
    record = {"inputTokenCount": odd, "outputTokenCount": 3, "totalTokenCount": None, "extensionData": {"x": odd}}
    assert decode_usage(record) == {"output_token_count": 3}
    assert usage_of_response({"input_token_count": odd, "output_token_count": 3}, "m").tokens == 3
