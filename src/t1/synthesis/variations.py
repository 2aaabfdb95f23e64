"""Other circumstances under which the same solution must still solve the task: another clock, locale and user.

The clock is a small preloaded library, compiled here (libfaketime where there is no compiler: it breaks the sleep of
some Pythons); the locale is built from the host's sources; the user is another id, home and umask. What a host cannot
offer is named, never silently left out. Boundary: environment variables and a directory of libraries; nothing of the
host is changed.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

SHIFT_S = (400 * 24 + 7) * 3600 + 1234
"""Another year, weekday, hour, minute: what a shifted clock is ahead by."""
LOCALE = "tr_TR.UTF-8"
"""Decimal comma, another order of letters, and an i that is no I: what breaks scripts."""
UID = 4242
FAKETIME = "usr/lib/*/faketime/libfaketime.so.1"
BUILD_S = 60.0


@dataclass(frozen=True, slots=True)
class Variation:
    """Circumstances of one trial."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    """For the solution and for the verifier."""
    umask: str = ""
    """For the solution."""
    how: str = ""
    """How it is brought about, for the record."""
    missing: str = ""
    """Why this host cannot offer it; it is not run then."""

    @property
    def code(self) -> str:
        """Its name as one word."""
        return self.name.replace(", ", "-and-")

    def wrap(self, script: str) -> str:
        """The command line that runs `script` under these circumstances."""
        env = "".join(f" {name}={shlex.quote(value)}" for name, value in self.env.items())
        mask = f"umask {self.umask}; " if self.umask else ""
        home = f'mkdir -p "{self.env["HOME"]}"; ' if "HOME" in self.env else ""
        run = f"env{env} bash -c {shlex.quote(script)}" if env else f"bash -c {shlex.quote(script)}"
        return f"({mask}{home}{run})" if mask or home else run


PLAIN = Variation("plain")


def at_once(variations: Sequence[Variation]) -> Variation | None:
    """All of them in one trial; None where there are fewer than two, or two want a variable for themselves."""
    env: dict[str, str] = {}
    for variation in variations:
        if any(env.get(name, value) != value for name, value in variation.env.items()):
            return None
        env |= variation.env
    if len(variations) < 2:
        return None
    umask = next((variation.umask for variation in variations if variation.umask), "")
    names, ways = (", ".join(getattr(v, part) for v in variations) for part in ("name", "how"))
    return Variation(names, env, umask, how=ways)


class Circumstances:
    """The variations that this host can offer; owns the directory that sandboxes must be able to read."""

    def __init__(self, root: Path | None = None) -> None:
        """Build what is needed below `root` (default: the temporary directory), a second of work."""
        self.folder = Path(tempfile.mkdtemp(prefix="t1-circumstances-", dir=root))
        self.folder.chmod(0o755)
        try:
            shim = self._shim()
            self.variations = (self._clock(shim), self._locale(), self._user(shim))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the directory. Safe to call twice."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _shim(self) -> Path | None:
        """The compiled library, or None without a compiler."""
        compiler, target = shutil.which("cc") or shutil.which("gcc"), self.folder / "shim.so"
        if compiler is None:
            return None
        with resources.as_file(resources.files("t1.synthesis") / "shim.c") as source:
            built = _run([compiler, "-shared", "-fPIC", "-O1", "-w", "-o", str(target), str(source), "-ldl"])
        if not built:
            return None
        target.chmod(0o755)
        return target

    def _clock(self, shim: Path | None) -> Variation:
        if shim is not None:
            env = {"LD_PRELOAD": str(shim), "T1_SHIFT_S": str(SHIFT_S)}
            return Variation("clock", env, how=f"preloaded clock, {SHIFT_S} s ahead; times of files are the kernel's")
        if found := sorted(Path("/").glob(FAKETIME)):
            library = self.folder / "libfaketime.so.1"
            shutil.copyfile(found[0], library)
            library.chmod(0o755)
            env = {"LD_PRELOAD": str(library), "FAKETIME": f"+{SHIFT_S}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
            return Variation("clock", env, how=f"libfaketime, {SHIFT_S} s ahead")
        return Variation("clock", missing="neither libfaketime nor a C compiler: apt-get install libfaketime")

    def _locale(self) -> Variation:
        language, _, charset = LOCALE.partition(".")
        folder = self.folder / "locales"
        folder.mkdir()
        tool = shutil.which("localedef")
        if tool is None or not _run([tool, "-i", language, "-f", charset, str(folder / LOCALE)]):
            return Variation("locale", missing="localedef cannot build a locale here: apt-get install locales")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        env = {"LOCPATH": str(folder), "LC_ALL": LOCALE, "LANG": LOCALE, "LANGUAGE": language}
        return Variation("locale", env, how=LOCALE)

    def _user(self, shim: Path | None) -> Variation:
        env = {"HOME": "/tmp/.t1-home", "USER": "someone", "LOGNAME": "someone"}
        if shim is None:
            return Variation(
                "user", env, "027", how="another home, name and umask; the uid is the same (no C compiler)"
            )
        env |= {"LD_PRELOAD": str(shim), "T1_UID": str(UID)}
        return Variation("user", env, "027", how=f"uid {UID}, another home, name and umask")


def _run(command: list[str]) -> bool:
    """Whether a tool of the host did its work."""
    try:
        return subprocess.run(command, capture_output=True, timeout=BUILD_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
