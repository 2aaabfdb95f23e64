"""Weights from the trainer's GPUs into an engine's, over NCCL and past the disk.

UNTESTED ON GPUS: written against vLLM 0.30's and SGLang 0.5.23's sources; no machine with two GPUs was at hand. Our
side of SGLang's transfer is tested over gloo, against a receiver of our own (`t1.testing.receiver`), and over NCCL by
`make test-gpu`; vLLM's was never run. `RemoteSampler.publish` (from disk) is what real engines were tested with.
After the first use on real GPUs run the preflight with publishing (`t1 doctor --engine URL --model PATH --weights-dir
DIR`) before anything is trained.

The trainer is rank 0 of a group of its own with all workers of one engine; both sides must be in the same collective at
the same time, so that the engine is told in one thread while this one broadcasts. Boundary: the transfer. Holding
requests, caches and labels is the client's, by `RemoteSampler.receive`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import torch

from t1.errors import EngineError

GROUP = "t1-weights"


def hub_weights(model: Any, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors under the hub's names, experts one by one, as engines load them; `model` is the trainer's."""
    from transformers.core_model_loading import revert_weight_conversion

    converted: dict[str, torch.Tensor] = revert_weight_conversion(model, dict(weights))
    return converted


class VllmTransfer:
    """Broadcasts to one vLLM server by vLLM's own trainer side, which must be installed beside the trainer.

    The server needs VLLM_SERVER_DEV_MODE=1 and `--weight-transfer-config '{"backend": "nccl"}'`.
    """

    def __init__(self, url: str, model: torch.nn.Module, *, address: str, port: int, num_workers: int) -> None:
        """Open the group. `model`: the trainer's, whose parameters are sent as they are at each `send`."""
        from vllm.distributed.weight_transfer import base, clients, nccl_engine

        info = nccl_engine.NCCLTrainerInitInfo(
            rank=0, master_address=address, master_port=port, world_size=num_workers + 1
        )
        self._engine: Any = nccl_engine.NCCLTrainerWeightTransferEngine.trainer_init(
            info, client=clients.HTTPVLLMWeightSyncClient(url), source=base.ModuleSource(model)
        )

    def send(self) -> None:
        """Broadcast all parameters, under the names of the module: vLLM's loader of the family must know those."""
        self._engine.send_weights()

    def close(self) -> None:
        """Leave the group."""
        self._engine.shutdown()


class SglangTransfer:
    """Broadcasts to one SGLang server: `/init_weights_update_group`, then `/update_weights_from_distributed`."""

    def __init__(
        self,
        url: str,
        *,
        address: str,
        port: int,
        num_workers: int,
        timeout_s: float = 600.0,
        bucket_bytes: int = 2**30,
        backend: str = "nccl",
    ) -> None:
        """Open the group. `address`, `port`: of this trainer, as the engine reaches it; `num_workers`: its GPUs."""
        self._http = httpx.Client(base_url=url, timeout=timeout_s, trust_env=False)
        self._timeout_s, self._bucket_bytes = timeout_s, bucket_bytes
        body = {
            "master_address": address,
            "master_port": port,
            "rank_offset": 1,
            "world_size": num_workers + 1,
            "group_name": GROUP,
            "backend": backend,
        }
        self._group: Any = self._beside(
            "/init_weights_update_group",
            body,
            lambda: open_group(address, port, num_workers + 1, timeout_s, backend=backend),
        )

    def send(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Broadcast all tensors, by the hub's names; the caches are flushed with the last of them."""
        buckets = _buckets(weights, self._bucket_bytes)
        for index, bucket in enumerate(buckets):
            body = {
                "names": list(bucket),
                "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in bucket.values()],
                "shapes": [list(tensor.shape) for tensor in bucket.values()],
                "group_name": GROUP,
                "flush_cache": index == len(buckets) - 1,
                "weight_version": str(version),
            }
            self._beside("/update_weights_from_distributed", body, partial(self._broadcast, bucket))

    def close(self) -> None:
        """Leave the group."""
        torch.distributed.destroy_process_group(self._group)
        self._http.close()

    def _broadcast(self, bucket: Mapping[str, torch.Tensor]) -> None:
        """Every tensor from rank 0, in the order of the names."""
        handles = [
            torch.distributed.broadcast(tensor.contiguous(), src=0, group=self._group, async_op=True)
            for tensor in bucket.values()
        ]
        for handle in handles:
            handle.wait(timedelta(seconds=self._timeout_s))

    def _beside(self, path: str, body: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        """Do our side of a collective while the engine does its own; an engine that refuses is not waited for."""
        executor = ThreadPoolExecutor(max_workers=1)
        try:
            asked = executor.submit(self._post, path, body)
            if asked.done():
                asked.result()
            done = work()
            asked.result(self._timeout_s)
            return done
        finally:
            executor.shutdown(wait=False)

    def _post(self, path: str, body: Mapping[str, Any]) -> None:
        answer = self._http.post(path, json=body)
        if answer.status_code != 200 or answer.json().get("success") is not True:
            raise EngineError(f"{self._http.base_url}{path}: refused with {answer.status_code} {answer.text[:300]}")


def _buckets(weights: Mapping[str, torch.Tensor], most: int) -> list[dict[str, torch.Tensor]]:
    """Tensors in their order, cut so that no part holds more than `most` bytes, or one tensor that does."""
    buckets: list[dict[str, torch.Tensor]] = [{}]
    held = 0
    for name, tensor in weights.items():
        if buckets[-1] and held + tensor.nbytes > most:
            buckets.append({})
            held = 0
        buckets[-1][name] = tensor
        held += tensor.nbytes
    return buckets


def open_group(
    address: str, port: int, world_size: int, timeout_s: float, *, rank: int = 0, backend: str = "nccl"
) -> Any:
    """A group beside the trainer's own, as SGLang's workers join it: same store prefix, same name."""
    from torch.distributed import distributed_c10d as c10d

    parts: Any = c10d
    timeout = timedelta(seconds=timeout_s)
    store, rank, size = next(parts.rendezvous(f"tcp://{address}:{port}", rank, world_size, timeout=timeout))
    store.set_timeout(timeout)
    group, _ = parts._new_process_group_helper(
        size, rank, [], parts.Backend(backend), parts.PrefixStore(GROUP, store), group_name=GROUP, timeout=timeout
    )
    parts._world.pg_group_ranks[group] = {index: index for index in range(world_size)}
    return group
