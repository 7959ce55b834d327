"""The wire format of Anthropic's Messages API: requests, responses, events and errors."""
