"""The OpenAI Responses API on the wire."""
