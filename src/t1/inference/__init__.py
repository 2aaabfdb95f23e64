"""Engines behind the Sampler protocol. Here: the embedded torch engine, and how any part of T1 opens a model."""

from t1.inference.engine import TorchEngine
from t1.inference.models import load_model, use_threads

__all__ = ["TorchEngine", "load_model", "use_threads"]
