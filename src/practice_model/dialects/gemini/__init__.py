"""Google's Gemini API: its contents, chunks and errors, beside the items in which the practice model thinks."""
