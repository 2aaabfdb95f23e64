"""The gap between what sampled and what trains: measured, told by its kind, and what keeping text would make of it."""
