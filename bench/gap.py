"""The gap of T1 on this machine, for `make gap`: `t1 gap` with the embedded engine and, where it is installed, vLLM.

Both engines compute in bfloat16, the trainer in float32, over the same held-out tasks of the same policy: that of
`runs/quickstart`, or, where there is no such run, one that is fine-tuned here first (a few minutes, into `runs/gap`).
vLLM is started from `.venv-vllm`, which `make test-vllm` builds; without it the last line has no key `vllm`.
The last line is one JSON object: the cells of the embedded engine, and those of vLLM below `vllm`.

    python bench/gap.py [RUN] [--num-tasks 96]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from t1.testing.vllm_server import serving
from t1.training.checkpoints import latest_checkpoint

ROOT = Path(__file__).parent.parent
VLLM = ROOT / ".venv-vllm" / "bin" / "python"
CONTEXT = 768


def main() -> None:
    """Print both tables, and the JSON line."""
    options = _options()
    run = options.run or _policy()
    report = _gap(run, options.num_tasks)
    if VLLM.is_file():
        with tempfile.TemporaryDirectory(prefix="t1-gap-") as scratch:
            log, checkpoint = Path(scratch) / "vllm.log", _checkpoint(run)
            flags = ("--dtype", "bfloat16")
            with serving(str(VLLM), checkpoint, log, max_context=CONTEXT, more=flags) as url:
                report["vllm"] = _gap(run, options.num_tasks, "engine.kind=vllm", f'engine.urls=["{url}"]')
    else:
        print("vLLM WAS NOT MEASURED: no .venv-vllm here; run make test-vllm once", file=sys.stderr)
    print(json.dumps(report))


def _options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--num-tasks", type=int, default=96)
    return parser.parse_args()


def _policy() -> Path:
    """The quickstart's run, or one of SFT alone."""
    for name in ("quickstart", "gap"):
        if _has_policy(run := ROOT / "runs" / name):
            return run
    subprocess.run(
        [_t1(), "sft", "--out", str(run), "tasks.num_train=320", "tasks.num_heldout=128"], check=True, cwd=ROOT
    )
    return run


def _has_policy(run: Path) -> bool:
    return (run / "checkpoints" / "sft").is_dir()


def _checkpoint(run: Path) -> Path:
    """What `t1 gap` measures of a run."""
    return latest_checkpoint(run / "checkpoints" / "rl") or run / "checkpoints" / "sft"


def _gap(run: Path, num_tasks: int, *settings: str) -> dict[str, Any]:
    """`t1 gap --json`; its table goes to our stderr."""
    command = [_t1(), "gap", str(run), *settings, "--num-tasks", str(num_tasks), "--json"]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _t1() -> str:
    """The command beside this interpreter."""
    return str(Path(sys.executable).with_name("t1"))


if __name__ == "__main__":
    main()
