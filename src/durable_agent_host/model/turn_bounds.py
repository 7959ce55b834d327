"""Limits of one turn, whatever its model's service sends and its tools return."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelBounds:
    """Limits of a turn; each is a setting. A turn that exceeds one fails, and names the setting.

    Attributes:
        answer_bytes: of one answer of the model's service, decompressed: room for a dozen generated images, which a
            stream repeats up to five times.
        line_bytes: of one line of a streamed answer: the last event of a stream repeats all of it.
        turn_bytes: of all answers in one attempt of a turn.
        answer_seconds: from a model call to the end of its answer, even while data arrives.
        model_calls: of one turn.
        calls_at_once: tool calls of one answer.
        argument_bytes: of one tool call.
        tool_result_bytes: of one tool call; the model is told that the result was too large.
    """

    answer_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 32 * 1024 * 1024
    turn_bytes: int = 256 * 1024 * 1024
    answer_seconds: float = 1200.0
    model_calls: int = 100
    calls_at_once: int = 128
    argument_bytes: int = 4 * 1024 * 1024
    tool_result_bytes: int = 32 * 1024 * 1024


@dataclass(frozen=True)
class KeptBounds:
    """Limits on the kept wire traffic with a model's service, compressed; each is a setting.

    Attributes:
        call_bytes: of one request or one answer; 0 keeps nothing.
        turn_bytes: of everything in one attempt of a turn.
    """

    call_bytes: int = 256 * 1024
    turn_bytes: int = 1024 * 1024
