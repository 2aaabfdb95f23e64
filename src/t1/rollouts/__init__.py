"""Rollouts: collecting, admitting, recording and storing them."""

from t1.rollouts.admission import Admission, Rule
from t1.rollouts.background import LoopThread
from t1.rollouts.breaker import CircuitBreaker
from t1.rollouts.collect import Bounds, Collector
from t1.rollouts.cost import Prices
from t1.rollouts.demotions import DemotionPolicy, Demotions
from t1.rollouts.ledger import Ledger
from t1.rollouts.sources import Lockstep, Lookahead, TaskStream, collect_all

__all__ = [
    "Admission",
    "Bounds",
    "CircuitBreaker",
    "Collector",
    "DemotionPolicy",
    "Demotions",
    "Ledger",
    "Lockstep",
    "Lookahead",
    "LoopThread",
    "Prices",
    "Rule",
    "TaskStream",
    "collect_all",
]
