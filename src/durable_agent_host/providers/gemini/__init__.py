"""Google's Gemini, through `agent_framework_gemini` 1.0.0b261022: unmodified parts alongside the neutral contents.

`provider` implements the port, `client` adapts an agent's client, `part_mapping` is the pure part of that.
"""

from typing import Final

CLIENT: Final = ("agent_framework_gemini", "RawGeminiChatClient")
"""Package and name of the class from which clients of Gemini derive."""
