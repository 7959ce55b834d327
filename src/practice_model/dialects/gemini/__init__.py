"""Google's Gemini API: its contents, chunks and errors, converted from and to items of the Responses API."""
