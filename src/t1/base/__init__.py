"""The base model of the quickstart: its corpus, its tokenizer, its pre-training, and the copy that is shipped."""

from __future__ import annotations

from pathlib import Path


def base_path() -> Path:
    """The shipped checkpoint: a Qwen3-MoE in Hugging Face format with its tokenizer."""
    return Path(__file__).parent / "qwen3-moe-shell"


__all__ = ["base_path"]
