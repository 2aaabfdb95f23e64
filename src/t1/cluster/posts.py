"""What every cluster offers: posts, each a process somewhere that holds one object and answers calls to its methods.

A post keeps its name when its process is started again, so whoever holds it finds the new process. Boundary: names
and promises; `local.py` keeps them with subprocesses, `ray.py` with actors, and nobody else knows which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Recipe: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]
"""Makes the object of a post, in its process. Importable and picklable, such as a `functools.partial` of a module's
function. The object has `aclose()`; its other public methods can be called, coroutines or not."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one process is placed by."""

    cpus: float = 1.0
    """Cores; so many threads does its numerical work get, one at least."""
    memory_mb: int = 0
    """0 = not counted."""
    gpus: float = 0.0


class Shared(Protocol):
    """A large value that was put down once. As an argument of a call it arrives as the value."""

    async def load(self) -> Any: ...

    async def forget(self) -> None:
        """Its owner does not need it any more. Safe to call twice."""
        ...


class Post(Protocol):
    """A process by its name. Can be sent to other processes of the cluster; use one copy from one event loop."""

    @property
    def name(self) -> str: ...

    async def call(self, method: str, *arguments: Any) -> Any:
        """What the method returns or raises there; ProcessLost when the process is gone, or goes meanwhile.

        Cancelling cancels the call there too, and returns when that is confirmed, within a bound.
        """
        ...

    async def where(self) -> str:
        """The address of its machine, for those who want to meet there."""
        ...

    async def hang_up(self) -> None:
        """Free what this copy holds; the process lives on."""
        ...


class Reservation(Protocol):
    """Room for several processes that only make sense together."""

    async def release(self) -> None: ...


Place: TypeAlias = tuple[Reservation, int]
"""A reservation, and which of its places."""


class Cluster(Protocol):
    """Starts and ends processes. Use it from one event loop."""

    def room(self, needs: Needs) -> int:
        """How many processes with these needs the cluster has room for, were it empty."""
        ...

    async def reserve(self, number: int, needs: Needs, *, timeout_s: float) -> Reservation:
        """Room for `number` processes at once, or InfrastructureError: all of it or none."""
        ...

    async def start(
        self,
        name: str,
        recipe: Recipe,
        needs: Needs,
        *,
        timeout_s: float,
        within: Place | None = None,
    ) -> Post:
        """Start the process `name`, ending an earlier one of this name; ready when its object is made.

        `within`: the reservation, and which place of it. Raises what the recipe raised, or ProcessLost.
        """
        ...

    def post(self, name: str) -> Post:
        """The post of this name, whether or not a process has it now."""
        ...

    async def stop(self, post: Post, *, timeout_s: float) -> None:
        """Close its object within the bound, then end the process in any case. Lost ones are fine."""
        ...

    async def last_words(self, post: Post) -> str:
        """The end of what its processes wrote to their standard error; empty where that is not kept."""
        ...

    async def share(self, value: Any) -> Shared:
        """Put a value down where every process of the cluster can load it."""
        ...

    async def close(self) -> None:
        """End every process that was started here. Safe to call twice."""
        ...
