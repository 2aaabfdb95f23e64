"""Small talk in which the assistant says, picks, completes or orders words that the user wrote. No command occurs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from t1.base.words import file_name, made_up, pseudo_word, word, words

Exchange = tuple[str, str]
"""(what the user says, what the assistant answers)."""


def _distinct(rng: Random, low: int, high: int) -> list[str]:
    make = rng.choice((word, word, word, file_name, made_up, pseudo_word))
    return list(dict.fromkeys(make(rng) for _ in range(rng.randint(low, high))))


def say(rng: Random) -> Exchange:
    """Say what is asked for."""
    text = " ".join(_distinct(rng, 1, 4))
    ask = rng.choice(("say {}", "please say {}", "Say: {}", "can you say {}?", "{} is the word, say it", 'say "{}"'))
    return ask.format(text), text


def say_twice(rng: Random) -> Exchange:
    """Say it more than once."""
    name = _distinct(rng, 1, 1)[0]
    times, count = rng.choice((("twice", 2), ("three times", 3), ("once", 1)))
    return f"say {name} {times}", " ".join([name] * count)


def say_then(rng: Random) -> Exchange:
    """Two things, in the order of time and not of mention."""
    first, second = (_distinct(rng, 1, 1)[0] for _ in range(2))
    if rng.random() < 0.5:
        return f"say {first} and then {second}", f"{first} {second}"
    return f"before you say {second}, say {first}", f"{first} {second}"


def neighbour(rng: Random) -> Exchange:
    """What comes after or before."""
    names = _distinct(rng, 4, 8)
    i = rng.randrange(1, len(names)) if len(names) > 1 else 0
    listed = rng.choice((" ", ", ", "\n")).join(names)
    if rng.random() < 0.6:
        return f"{listed}\n{rng.choice(('what comes after', 'next after'))} {names[i - 1]}?", names[i]
    return f"{listed}\n{rng.choice(('what comes before', 'just before'))} {names[i]}?", names[i - 1]


def position(rng: Random) -> Exchange:
    """The first, second, third or last."""
    names = _distinct(rng, 3, 6)
    listed = rng.choice((" ", ", ", "\n")).join(names)
    label, i = rng.choice((("first", 0), ("second", 1), ("last", -1)))
    return f"{listed}\n{label}?", names[i if i < len(names) else -1]


def lookup(rng: Random) -> Exchange:
    """The value of a key."""
    keys = list(dict.fromkeys(words(rng, rng.randint(3, 5))))
    values = [
        rng.choice((word, file_name, made_up))(rng) if rng.random() < 0.8 else str(rng.randint(1, 99)) for _ in keys
    ]
    glue = rng.choice((": ", " is ", "=", ","))
    i = rng.randrange(len(keys))
    return "\n".join(k + glue + v for k, v in zip(keys, values, strict=True)) + f"\nand {keys[i]}?", values[i]


def spell(rng: Random) -> Exchange:
    """Letter by letter."""
    name = word(rng) if rng.random() < 0.7 else pseudo_word(rng)
    if rng.random() < 0.5:
        return f"spell {name}", "-".join(name)
    return f"which word is {'-'.join(name)}?", name


def reverse(rng: Random) -> Exchange:
    """The same words from the end."""
    names = _distinct(rng, 2, 5)
    return f"{' '.join(names)}\nbackwards please", " ".join(reversed(names))


def alphabet(rng: Random) -> Exchange:
    """The same words by the alphabet."""
    names = list(dict.fromkeys(words(rng, rng.randint(2, 4))))
    return f"{' '.join(names)}\nby the alphabet?", " ".join(sorted(names))


def how_many(rng: Random) -> Exchange:
    """Count what was said."""
    names = _distinct(rng, 1, 6)
    return f"{' '.join(names)}\nhow many is that?", str(len(names))


def which_seen(rng: Random) -> Exchange:
    """The name with a given ending or beginning."""
    names = list(dict.fromkeys(file_name(rng) for _ in range(rng.randint(3, 5))))
    chosen = rng.choice(names)
    ending = chosen.split(".")[-1]
    matching = [name for name in names if name.endswith(f".{ending}")]
    listed = rng.choice((" ", "\n")).join(names)
    return f"I saw these:\n{listed}\nwhich was .{ending}?", matching[0]


def is_there(rng: Random) -> Exchange:
    """Yes or no."""
    names = _distinct(rng, 3, 6)
    asked = rng.choice(names) if rng.random() < 0.5 else word(rng)
    return f"{' '.join(names)}\nis {asked} among them?", "yes" if asked in names else "no"


def complete(rng: Random) -> Exchange:
    """Finish a line that was said before."""
    lines = [" ".join(words(rng, rng.randint(3, 5))) for _ in range(rng.randint(2, 3))]
    start, rest = rng.choice(lines).split(" ", 1)
    return "\n".join([*lines, "", f"{start} ..."]), rest


def without(rng: Random) -> Exchange:
    """All but one."""
    names = _distinct(rng, 3, 5)
    left_out = rng.choice(names)
    return f"{' '.join(names)}\nall but {left_out}", " ".join(name for name in names if name != left_out)


def swap(rng: Random) -> Exchange:
    """One word instead of another."""
    names = list(dict.fromkeys(words(rng, rng.randint(2, 4))))
    old, new = rng.choice(names), word(rng)
    return f"{' '.join(names)}\nbut {new} for {old}", " ".join(new if name == old else name for name in names)


CHAT: tuple[Callable[[Random], Exchange], ...] = (
    say, say, say, say_twice, say_then, say_then, neighbour, neighbour, position, lookup, lookup, spell, reverse,
    alphabet, how_many, which_seen, is_there, complete, without, swap,
)  # fmt: skip
