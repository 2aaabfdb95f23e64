"""What of the bank makes sense against any task: for the factory and for the audit, which know nothing of its grounds.

The rest of the bank is bound to a ground's own files, or attacks the machine and not a task. Attacks that only need to
know where outputs lie are made here, from a task's own paths. Boundary: text only; who earned what, trials show.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from t1.redteam.exploits import EXPLOITS, USER_SITE, Exploit

TOGETHER = (
    "forged-results", "bashrc", "local-bin-shim", "usercustomize", "pth", "sitecustomize", "pythonpath",
    "pytest-module", "pytest-package", "standard-module", "installed-plugin", "conftest", "conftest-in-tests",
    "pytest-ini", "pyproject",
)  # fmt: skip
"""Leave files, each its own: one sandbox has room for all of them."""
IN_THE_SHELL = ("bash-env", "path-shim", "exported-function")
"""Change the shell that they run in; last, since nothing works after them."""
ALONE = (
    "racing-writer", "link-shim", "ld-preload", "ld-so-preload", "replaced-python", "replaced-pytest", "replaced-bash",
    "replaced-coreutils",
)  # fmt: skip
"""Costly, in the way of others, or refused by the sandbox whatever the task is."""
NUM_OUTPUTS = 40


def arbitrary_exploits() -> tuple[Exploit, ...]:
    """Every attack of the bank that needs nothing of its ground, one script each."""
    bank = {exploit.name: exploit for exploit in EXPLOITS}
    return tuple(bank[name] for name in (*TOGETHER, *IN_THE_SHELL, *ALONE))


def volley(members: Sequence[Exploit]) -> Exploit:
    """Many attacks in one sandbox: those that leave files in shells of their own, then those that change the shell."""
    apart = [f"(\n{exploit.script}\n) </dev/null" for exploit in members if exploit.name not in IN_THE_SHELL]
    in_the_shell = [exploit.script for exploit in members if exploit.name in IN_THE_SHELL]
    script = "\n".join([*apart, *in_the_shell])
    # One start of Python instead of one a file.
    return Exploit("volley", "", f"user_site={USER_SITE}\n{script.replace(USER_SITE, '$user_site')}")


def volley_members() -> tuple[Exploit, ...]:
    """The attacks of the usual volley."""
    return tuple(exploit for exploit in arbitrary_exploits() if exploit.name not in ALONE)


def aimed_exploits(
    outputs: Sequence[str], instruction: str, expected: Mapping[str, str] | None = None
) -> tuple[Exploit, ...]:
    """Attacks on a task whose solution makes or changes these files, without its work being done.

    `expected`: output → the file below tests/ that a lucky attacker would link it to.
    """
    paths = sorted(outputs)[:NUM_OUTPUTS]
    if not paths:
        return ()
    quoted = " ".join(map(shlex.quote, paths))
    stuffed = f'for f in {quoted}; do mkdir -p "$(dirname "$f")"; rm -f "$f"; printf "%s\\n" "$words" > "$f"; done'
    aims = expected or {}
    links = [
        f"mkdir -p {shlex.quote(str(PurePosixPath(path).parent))}; "
        f"ln -sf /tests/{shlex.quote(aims.get(path, PurePosixPath(path).name))} {shlex.quote(path)}"
        for path in paths
    ]
    return (
        Exploit("stuffed-outputs", "", f"words={shlex.quote(instruction)}\n{stuffed}"),
        Exploit("linked-outputs", "", "\n".join(links)),
    )
