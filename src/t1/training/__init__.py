"""Training: `t1.training.sft.SFTTrainer` and `t1.training.ppo.PPOTrainer`, which share packs, forward and checkpoints.

Boundary: trajectories in, better weights out; sandboxes, samplers and tasks are unknown here. This module and
`config` import no torch, so that a run's configuration is read and checked without it.
"""
