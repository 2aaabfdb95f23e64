"""Settings that hold for every test, made before torch is imported."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # two workers with two threads each slow one another down tenfold
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
