"""Google's Gemini, through `agent_framework_gemini` 1.0.0b261022: unmodified parts alongside the neutral contents.

`provider` implements the port, `client` adapts an agent's client, `part_mapping` is the pure part of that.
"""
