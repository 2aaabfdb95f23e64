"""Synthesis: tasks are proposed, rewritten, selected in five stages and audited, before anybody trains on them."""
