"""Model providers behind the port `agent.provider`: one folder each, and `neutral` for every other client."""
