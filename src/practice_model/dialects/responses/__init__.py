"""The wire format of the OpenAI Responses API."""
