"""What UTF-8 cannot represent is replaced where requests are written."""

from durable_agent_host.providers.surrogate_replacement import encode_body, encode_text, without_lone_surrogates


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    """Whole pairs and everything else stay; the argument is not changed."""
    value = {"a\udfff": ["x\ud800y", "\ud83d\ude00", "ü😀"], "b": 1}
    assert without_lone_surrogates(value) == {"a\ufffd": ["x\ufffdy", "😀", "ü😀"], "b": 1}
    assert value["a\udfff"][0] == "x\ud800y"
    assert encode_text("x\ud800y\ud83d\ude00") == "x\ufffdy😀".encode()


def test_a_long_request_is_written_with_whole_characters():
    """Names and texts of any length."""
    long = "é" * 300_000
    body = {"contents": [{"\ud800": "\ud800" + long, "n": ["a\udfff", long]}]}
    assert encode_body(body) == encode_body({"contents": [{"\ufffd": "\ufffd" + long, "n": ["a\ufffd", long]}]})


def test_a_body_that_is_not_json_is_left_to_the_sdk():
    """Its SDK may be able to write it."""
    for value in (object(), float("nan")):
        assert encode_body({"contents": [{"content": value}]}) is None
