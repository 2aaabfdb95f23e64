"""Rollouts: collecting, scheduling and storing them."""

from t1.rollouts.collect import Bounds, Collector
from t1.rollouts.sources import Lockstep, TaskStream, collect_all

__all__ = ["Bounds", "Collector", "Lockstep", "TaskStream", "collect_all"]
