"""Model providers behind the port `agent.provider`: one folder each, and `generic_provider` for all others."""
