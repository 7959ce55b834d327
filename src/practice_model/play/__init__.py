"""The model's responses: planned, recorded or derived from the request."""
