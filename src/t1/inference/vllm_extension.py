"""What T1 adds to a vLLM worker: a reload of weights from disk after which nothing of the old ones is left.

On processors, vLLM 0.30's own `reload_weights` answers that all is well and keeps two packed copies: of the experts
(log-probabilities are off by nats) and of an output head that is tied to the embeddings. Here both are made anew. Start
the server with

    PYTHONPATH=.../src python -m vllm.entrypoints.openai.api_server … \
        --worker-extension-cls t1.inference.vllm_extension.WeightReloader

Boundary: runs inside vLLM's worker process, under vLLM's Python; imports neither T1 nor vLLM.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class WeightReloader:
    """Mixed into vLLM's worker class by `--worker-extension-cls`; called through `POST /collective_rpc`."""

    def t1_reload(self, path: str) -> dict[str, Any]:
        """Load the Hugging Face checkpoint at `path` in place; says how many layers were packed again.

        A path that cannot be read is reported before anything is touched: vLLM would otherwise be left with a model
        that is half unloaded, and die at the next request.
        """
        if problem := _unreadable(Path(path)):
            return {"loaded": False, "error": problem}
        worker: Any = self
        worker.reload_weights(weights_path=path)
        model = worker.get_model()
        return {"loaded": True, "experts": _pack_experts(model), "heads": _pack_heads(model)}


def _unreadable(path: Path) -> str:
    """Why there is no checkpoint to be had at `path`, or nothing."""
    try:
        shards = sorted(path.glob("*.safetensors"))
        if not shards:
            return f"{path}: no *.safetensors as this worker sees it; is the directory shared with the trainer?"
        for shard in shards:
            with shard.open("rb") as opened:
                opened.read(8)
    except OSError as error:
        return f"{path}: {error}"
    return ""


def _pack_experts(model: Any) -> int:
    """Make the kernels' packed copies of all expert weights from the loaded ones; returns how many layers have one."""
    packed = 0
    for module in model.modules():
        kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
        experts: Any = getattr(kernel, "fused_experts", None)
        if hasattr(module, "w13_weight") and hasattr(experts, "process_weights_after_loading"):
            experts.process_weights_after_loading(module)
            packed += 1
    return packed


def _pack_heads(model: Any) -> int:
    """The same for output heads: a tied one has no weights in a checkpoint, so that a reload passes it by."""
    packed = 0
    for module in model.modules():
        if type(module).__name__ == "ParallelLMHead" and hasattr(module, "cpu_linear"):
            module.quant_method.process_weights_after_loading(module)
            packed += 1
    return packed
