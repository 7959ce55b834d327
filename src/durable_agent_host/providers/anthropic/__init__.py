"""Anthropic's Claude, through `agent_framework_anthropic` 1.0.0b261022: blocks are stored and sent back unmodified.

`provider` implements the port, `client` adapts an agent's client. `message_accumulator` accumulates a streamed message,
`block_types` has one row for each type of block, `block_mapping` turns blocks into contents and back,
`request_messages` writes the request.
"""

from typing import Final

CLIENT: Final = ("agent_framework_anthropic", "RawAnthropicClient")
"""Package and name of the class from which clients of Anthropic derive, including those for Bedrock and Vertex."""
