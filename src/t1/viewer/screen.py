"""Output of a terminal as a terminal shows it: runs of text with a style, and nothing in them that acts.

Colours, carriage returns, backspaces and moves of the cursor are replayed by pyte on a screen that is as wide as the
text and scrolls up without losing a line. What a page must not do for a stranger is taken out before: control strings
(titles, links, clipboard) are counted, and characters that hide or reorder text stand there by their number.

Boundary: text in, runs out. A style is a list of class names out of a fixed vocabulary, so that the page decides what a
colour looks like, and no text can be made invisible.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import pyte
from pyte.modes import LNM
from pyte.screens import Char

Run: TypeAlias = tuple[str, str]
"""(text, class names)."""

HEIGHT = 40
"""Rows within which a cursor can move; what scrolls out of them stays as it is."""
MIN_WIDTH, MAX_WIDTH = 80, 2000
CHUNK, DEADLINE_S = 1024, 1.0
"""Characters between two looks at the clock, and how long one text may take: the rest is shown as it is."""
_CONTROL_STRING = re.compile(r"\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)")
_OPEN_STRING = re.compile(r"\x1b(?=[\]PX^_%])")
_ACTS = re.compile(r"[\x08\x1b\r]")
_STYLING = re.compile(r"\x1b\[([0-9;]*)m")
_HIDDEN = re.compile(
    "[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A text as it is shown."""

    runs: tuple[Run, ...]
    replayed: bool = False
    """True where control sequences were: the raw text reads differently."""
    dropped: int = 0
    """Control strings that were taken out."""
    late: bool = False
    """True where replaying took too long, and the rest stands as it was written."""

    @property
    def text(self) -> str:
        """Without styles."""
        return "".join(text for text, _ in self.runs)


def render(text: str, *, deadline_s: float = DEADLINE_S) -> Shown:
    """The text as a terminal shows it in the end, as far as that is found out in `deadline_s`."""
    text = text.replace("\r\n", "\n")
    if not _ACTS.search(text):
        return Shown(((visible(text), ""),) if text else ())
    text, dropped = _CONTROL_STRING.subn("", text)
    text = _OPEN_STRING.sub("␛", text)
    if not _ACTS.search(_STYLING.sub("", text)):
        return Shown(tuple(_styled(text)), True, dropped)
    screen, fed, until = _Screen(_width(text)), 0, time.monotonic() + deadline_s
    stream = pyte.Stream(screen)
    try:
        while fed < len(text) and time.monotonic() < until:
            stream.feed(visible(text[fed : fed + CHUNK], keep="\b\r\x1b"))
            fed += CHUNK
    except Exception:  # pyte trips over some sequences that no terminal knows
        fed += CHUNK
    runs = list(screen.runs())
    if late := fed < len(text):
        runs.append((visible(text[fed:]), ""))
    return Shown(tuple(runs), True, dropped, late)


def _styled(text: str) -> Iterator[Run]:
    """The runs of a text whose only sequences are those of style."""
    screen, at = pyte.Screen(1, 1), 0
    for found in _STYLING.finditer(text):
        if found.start() > at:
            yield visible(text[at : found.start()]), _look(screen.cursor.attrs)
        numbers = [min(int(number or 0), 9999) for number in found[1].split(";")]
        screen.select_graphic_rendition(*numbers)
        at = found.end()
    if at < len(text):
        yield visible(text[at:]), _look(screen.cursor.attrs)


def visible(text: str, keep: str = "") -> str:
    """Every character that cannot be seen, or that moves others, as ⟨its number⟩; but for those to `keep`."""
    text = _HIDDEN.sub(lambda found: f"⟨{ord(found[0]):02X}⟩", text)
    return text if keep else text.replace("\x1b", "␛").replace("\b", "⟨08⟩").replace("\r", "␍")


def _width(text: str) -> int:
    """Wide enough that nothing is wrapped that was one line."""
    longest = max(map(len, text.split("\n")), default=0)
    return max(MIN_WIDTH, min(longest + 1, MAX_WIDTH))


class _Screen(pyte.Screen):
    """A screen of HEIGHT rows, and every row that scrolled out above it."""

    def __init__(self, width: int) -> None:
        self.above: list[Mapping[int, Char]] = []
        super().__init__(width, HEIGHT)
        self.set_mode(LNM)  # what comes out of a pipe ends its lines with \n alone

    def index(self) -> None:
        """Scroll up, and keep the row."""
        if self.margins is None and self.cursor.y == self.lines - 1:
            self.above.append(self.buffer[0])
        super().index()

    def resize(self, *_: Any, **__: Any) -> None:
        """A program may not change the size: what it printed stands in the width that it needs."""

    def runs(self) -> Iterator[Run]:
        """All rows, down to the last one that was written."""
        last = max(self.buffer, default=-1)
        rows = [*self.above, *(self.buffer[y] for y in range(last + 1))]
        rows = rows[: max((y + 1 for y, row in enumerate(rows) if row), default=0)]
        text, style = "", ""
        for y, row in enumerate(rows):
            for data, look in _cells(row):
                if look != style and text:
                    yield text, style
                    text = ""
                text, style = text + data, look
            if y + 1 < len(rows):
                text += "\n"
        if text:
            yield text, style


def _cells(row: Mapping[int, Char]) -> Iterator[Run]:
    """The cells of a row up to its last visible one; those between that were never written are spaces."""
    end = max((x + 1 for x, cell in row.items() if cell.data != " " or _look(cell)), default=0)
    for x in range(end):
        cell = row[x]
        if cell.data:  # the second half of a wide character is empty
            yield cell.data, _look(cell)


def _look(cell: Char) -> str:
    return _style(cell.fg, cell.bg, cell.bold, cell.italics, cell.underscore, cell.reverse)


@lru_cache(maxsize=4096)
def _style(fg: str, bg: str, bold: bool, italics: bool, underscore: bool, reverse: bool) -> str:
    if reverse:
        fg, bg = ("white" if bg == "default" else bg), ("black" if fg == "default" else fg)
    names = [_colour("fg", fg), _colour("bg", bg), bold and "bold", italics and "italic", underscore and "underline"]
    return " ".join(name for name in names if name)


NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")


def _colour(prefix: str, name: str) -> str:
    """The nearest of the eight colours that the page has in both its themes."""
    if name == "default":
        return ""
    name = name.removeprefix("bright")
    if name in NAMES:
        return f"{prefix}{NAMES.index(name)}"
    try:
        channels = [int(name[i : i + 2], 16) for i in (0, 2, 4)]
    except ValueError:
        return ""
    low, high = min(channels), max(channels)
    if high - low < 48:
        return f"{prefix}{0 if high < 96 else 7}"
    middle = (low + high) / 2
    return f"{prefix}{sum(1 << i for i, channel in enumerate(channels) if channel > middle)}"
