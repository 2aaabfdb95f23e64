"""Plain text: sentences, lists, notes, tables, configs, and repetition to copy from. No command occurs here."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from t1.base.words import file_name, listed, made_up, pseudo_word, word, words

_SUBJECTS = listed(
    "the old {0}|a {1} {0}|my {0}|the {0} and the {1}|her {0}|one small {0}|every {0}|that {1} {0}|our {0}", "|"
)
_VERBS = listed(
    "saw|likes|took|found|left|kept|carried|lost|needs|made|bought|sold|painted|followed|forgot|wanted|held|cleaned|"
    "washed|broke|fixed|opened|closed|moved|hid|counted|watched|shared",
    "|",
)
_PLACES = listed(
    "near the {0}|by the {0}|in the {0}|under a {0}|on the {0}|behind the {0}|with a {0}|for the {0}|at the {0}", "|"
)
_TIMES = listed(
    "today|last week|in the morning|at night|every day|again|before lunch|after the rain|in summer|once more|later", "|"
)


def _clause(rng: Random) -> str:
    subject = rng.choice(_SUBJECTS).format(word(rng), word(rng))
    thing = rng.choice(("the {}", "a {}", "some {}", "two {}", "no {}", "his {}", "{}")).format(word(rng))
    parts = [subject, rng.choice(_VERBS), thing]
    if rng.random() < 0.6:
        parts.append(rng.choice(_PLACES).format(word(rng)))
    if rng.random() < 0.3:
        parts.append(rng.choice(_TIMES))
    return " ".join(parts)


def _sentence(rng: Random) -> str:
    text = _clause(rng)
    if rng.random() < 0.3:
        text += rng.choice((", and ", ", but ", " because ", ", so ", " when ", " while ")) + _clause(rng)
    return text[0].upper() + text[1:] + rng.choice("....!?")


def story(rng: Random) -> str:
    """A few sentences in which some nouns come back."""
    sentences = [_sentence(rng) for _ in range(rng.randint(2, 5))]
    if rng.random() < 0.4:
        sentences.append(f"So it was the {rng.choice(sentences).split()[-1].strip('.!?')}.")
    return " ".join(sentences)


def description(rng: Random) -> str:
    """Statements about files, directories and lines: what is, never what to do."""
    name, other, folder = file_name(rng), file_name(rng), made_up(rng)
    facts = [
        f"{name} is a file.",
        f"There are {rng.randint(2, 9)} lines in {name}.",
        f"{name} has {rng.randint(2, 9)} words.",
        f"{name} and {other} are in {folder}.",
        f"The directory {folder} was empty.",
        f"{other} is older than {name}.",
        f"Its first line was {word(rng)} and its last line was {word(rng)}.",
        f"Nobody had seen {other} since the {word(rng)} came.",
        f"{name} is a copy of {other}.",
        f"{name} became {other}.",
        f"The size of {name} is {rng.randint(10, 999)}.",
        f"The name of the archive was {folder}.tar.",
        f"The column {word(rng)} of {name} was sorted.",
        f"{other} links to {name}.",
    ]
    return " ".join(rng.sample(facts, rng.randint(2, 4)))


_MENTIONS = listed(
    "{0} is here.|I saw {0} near the {2}.|My {2} likes {0}.|First comes {0}, then {1}.|{0} and {1} belong together.|"
    "Look, {0} next to {1}!|Today it is {0}, and {1} after that.|Between {0} and {1} was a {2}.|Who knows {0}?|"
    "We had {0}, we had {1}.|{0}, {1}|{0}: {1}|{0} ({1})|it was {0}|{0}|about {0} with {1}|'{0}'|\"{0}\"",
    "|",
)


def mention(rng: Random, names: list[str]) -> str:
    """Sentences in which the names occur, in their order. They say nothing that could be done."""
    said, left = [], list(names)
    while left:
        form = rng.choice([form for form in _MENTIONS if len(left) > 1 or "{1}" not in form])
        said.append(form.format(left[0], left[1] if "{1}" in form else "", word(rng)))
        left = left[2 if "{1}" in form else 1 :]
    return rng.choice((" ", " ", "\n")).join(said)


def items(rng: Random) -> str:
    """A list with bullets or numbers."""
    style = rng.choice(("- {1}", "* {1}", "{0}. {1}", "{0}) {1}", "{1}"))
    rows = [style.format(i + 1, " ".join(words(rng, rng.choice((1, 1, 2))))) for i in range(rng.randint(3, 7))]
    return "\n".join([f"{word(rng)}:", *rows] if rng.random() < 0.5 else rows)


def notes(rng: Random) -> str:
    """Keys and values, and one of the values again."""
    glue = rng.choice((": ", ": ", "=", " = ", " -> "))
    keys = list(dict.fromkeys(words(rng, rng.randint(3, 6))))
    values = [str(rng.randint(1, 999)) if rng.random() < 0.25 else _name(rng) for _ in keys]
    rows = [f"{key}{glue}{value}" for key, value in zip(keys, values, strict=True)]
    again = rng.sample(range(len(keys)), min(2, len(keys)))
    return "\n".join(rows + [""] + [rows[i] for i in again])


def _name(rng: Random) -> str:
    return rng.choice((word, word, made_up, file_name, pseudo_word))(rng)


def table(rng: Random) -> str:
    """A CSV table, then one of its columns."""
    width, height = rng.randint(2, 4), rng.randint(2, 4)
    head = list(dict.fromkeys(words(rng, width)))
    rows = [[str(rng.randint(1, 99)) if rng.random() < 0.3 else word(rng) for _ in head] for _ in range(height)]
    text = "\n".join(",".join(row) for row in [head, *rows])
    column = rng.randrange(len(head))
    return text + f"\n\n{head[column]}: " + " ".join(row[column] for row in rows)


def config(rng: Random) -> str:
    """A small configuration file."""
    sections = [
        f"[{word(rng)}]\n" + "\n".join(f'{word(rng)} = "{_name(rng)}"' for _ in range(rng.randint(1, 3)))
        for _ in range(rng.randint(1, 2))
    ]
    return "\n".join(sections)


def echoes(rng: Random) -> str:
    """Random words and names, then some of them again in the same order."""
    names = [_name(rng) for _ in range(rng.randint(4, 12))]
    glue = rng.choice((" ", " ", "\n", ", ", ","))
    start = rng.randint(0, len(names) - 2)
    again = names[start : start + rng.randint(2, 8)]
    if rng.random() < 0.4:
        return glue.join(names) + "\n" + glue.join(names)
    return glue.join(names) + "\n" + glue.join(again)


def quoted(rng: Random) -> str:
    """One phrase in several quotations and cases of glue."""
    phrase = [_name(rng) for _ in range(rng.randint(1, 3))]
    text = " ".join(phrase)
    forms = [text, f'"{text}"', f"'{text}'", f"({text})", f"<{text}>", "/".join(phrase), ",".join(phrase), f"{text}."]
    return rng.choice(("\n", " ")).join(rng.sample(forms, rng.randint(2, 4)))


def copies(rng: Random) -> str:
    """Pairs of a thing and its copy, glued in one way throughout: the rest of the page follows from its start."""
    glue = rng.choice((" = ", " -> ", " ", ", ", " and "))
    return "\n".join(f"{name}{glue}{name}" for name in (_name(rng) for _ in range(rng.randint(3, 7))))


PLAIN: tuple[Callable[[Random], str], ...] = (
    story, description, items, notes, notes, table, config, echoes, echoes, echoes, quoted, copies,
)  # fmt: skip
