"""Weights by broadcast, past the disk: every byte arrives under its name, whatever its type and bucket."""

from __future__ import annotations

import socket

import httpx
import pytest
import torch

from t1.inference.nccl import SglangTransfer
from t1.testing.receiver import digest, receiving


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def weights_on(device: str) -> dict[str, torch.Tensor]:
    """Of several types and sizes, one of them a transposed view."""
    generator = torch.Generator().manual_seed(0)
    made = {
        "float": torch.randn(7, 5, generator=generator),
        "view": torch.randn(6, 3, generator=generator).t(),
        "half": torch.randn(64, 8, generator=generator).to(torch.bfloat16),
        "one": torch.ones(1),
    }
    return {name: weight.to(device) for name, weight in made.items()}


def published(device: str, backend: str, receiver_device: str) -> None:
    weights = weights_on(device)
    with receiving(free_port(), backend=backend, device=receiver_device) as url:
        transfer = SglangTransfer(
            url, address="127.0.0.1", port=free_port(), num_workers=1, timeout_s=60, bucket_bytes=200, backend=backend
        )
        for version in (1, 2):
            weights["one"].add_(version)
            transfer.send(weights, version)
            assert httpx.get(f"{url}/received", trust_env=False).json() == {
                name: digest(weight) for name, weight in weights.items()
            }
        transfer.close()


def test_weights_arrive_over_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    published("cpu", "gloo", "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL PUBLISHING WAS NOT TESTED: it takes two GPUs")
def test_weights_arrive_over_nccl() -> None:
    torch.cuda.set_device(0)
    published("cuda:0", "nccl", "cuda:1")
