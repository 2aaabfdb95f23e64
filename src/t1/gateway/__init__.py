"""Token-in, token-out for agents that speak text: an HTTP server in front of any Sampler.

Read `conversation.py` first (what crosses the wire, apart from any vendor's spelling of it), then `sessions.py` (how
the recorded ids of a conversation are found again), `rendering/` (messages to ids and back), `protocols/` (OpenAI and
Anthropic spellings) and `app.py` (the server).
"""
