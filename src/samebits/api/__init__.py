"""The HTTP server: OpenAI's API, with a promise behind every answer."""
