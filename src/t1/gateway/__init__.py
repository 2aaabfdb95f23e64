"""Token-in, token-out for agents that speak text: an HTTP server in front of any Sampler.

Read `conversation.py` first (what crosses the wire, apart from any vendor's spelling of it), then `sessions.py` (who
may do what) and `core.py` (one session: how a call is answered from recorded ids). Under them: `history.py` finds the
ids of a conversation again, `canonical.py` says what a client may change, `ledger.py` what is trained, `capture.py`
keeps it on disk. Around them: `rendering/` (messages to ids and back), `protocols/` (OpenAI and Anthropic spellings),
`app.py` (the server), `harness.py` and `agents/` (foreign agents in rollouts).
"""
