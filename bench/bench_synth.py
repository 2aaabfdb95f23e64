"""How many distinct sound tasks an hour the offline factory makes, all five stages with the audit's probes included.

    python bench/bench_synth.py [--seeds 64]

The last line is one JSON object: synth_tasks_per_hour (accepted tasks by wall-clock), seeds, accepted, wall_s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Run the command as a person does, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=64)
    seeds = parser.parse_args().seeds
    with tempfile.TemporaryDirectory(prefix="t1-bench-synth-") as folder:
        words = ["configs/tasks/synth.toml", f"run.num_seeds={seeds}", f"run.out={folder}/out"]
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "t1", "tasks", "synth", *words], check=True, timeout=3600)
        wall_s = time.monotonic() - started
        made = json.loads((Path(folder) / "out" / "datasheet.json").read_text())["accepted"]["tasks"]
    rate = round(made * 3600 / wall_s)
    print(json.dumps({"synth_tasks_per_hour": rate, "seeds": seeds, "accepted": made, "wall_s": round(wall_s, 1)}))


if __name__ == "__main__":
    main()
