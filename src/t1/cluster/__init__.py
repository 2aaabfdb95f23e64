"""Where the processes of a run live: on one machine, or spread by Ray. The loop does not know which.

posts.py     what a cluster offers: named processes that hold an object and answer calls
local.py     subprocesses                       ray.py      actors and placement groups
roster.py    keeps posts alive
crew.py      rollout workers as one collector   engines.py  placed or found engines as one sampler
ranks.py     trainer ranks as one trainer       learning.py the trainer that a configuration names
"""
