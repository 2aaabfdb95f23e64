"""Both clusters, for tests that hold for either; Ray's is three real nodes on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from t1.cluster.local import LocalCluster
from t1.cluster.posts import Cluster

NODE = {
    "num_cpus": 4,
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
}

QUICK = {"health_check_period_ms": 500, "health_check_timeout_ms": 1000, "health_check_failure_threshold": 3}
"""A dead node is noticed in two seconds."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Ray, and runs of many processes, take long to start: they run where they are asked for (`-m "ray or spread"`)."""
    if config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("ray") is not None:
            item.add_marker(pytest.mark.skip(reason="starts a Ray cluster: make test-ray"))
        elif item.get_closest_marker("spread") is not None:
            item.add_marker(pytest.mark.skip(reason="a whole run of many processes: make test-ray"))


@pytest.fixture(scope="session")
def node_options() -> dict[str, Any]:
    """What a node of the cluster is like."""
    return NODE


@pytest.fixture(scope="session")
def nodes() -> Iterator[Any]:
    """A Ray cluster: a head without cores of its own, and two nodes of four."""
    pytest.importorskip("t1.cluster.ray")  # first: what it tells Ray must hold for every node
    import ray
    from ray.cluster_utils import Cluster as Nodes

    head = {**NODE, "num_cpus": 0, "_system_config": QUICK}
    nodes = Nodes(initialize_head=True, head_node_args=head)
    for _ in range(2):
        nodes.add_node(**NODE)
    nodes.wait_for_nodes()
    ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.ray)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster of either kind, closed afterwards."""
    if request.param == "local":
        made: Cluster = LocalCluster(cpus=4, logs=tmp_path / "logs")
    else:
        request.getfixturevalue("nodes")
        from t1.cluster.ray import RayCluster

        (tmp_path / "logs").mkdir()
        made = RayCluster(logs=tmp_path / "logs")
    yield made
    await asyncio.wait_for(made.close(), 30)
