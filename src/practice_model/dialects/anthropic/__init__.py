"""The wire of Anthropic's Messages API: requests as the model reads them, its answers, events and errors."""
