"""The pre-training corpus: an endless stream of generated documents, a function of its seed.

Plain text, shell transcripts behind a `$` prompt, and ChatML-framed chats and transcripts. It shows how things are
copied, looked up and continued and what commands print; no document tells anyone what to do with a file. What keeps
it apart from the tasks is said in `t1.base.words`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from t1.base import shell
from t1.base.chat import CHAT
from t1.base.prose import PLAIN, mention
from t1.base.reading import read_and_use
from t1.base.shell import Exchange, act
from t1.base.tree import Tree
from t1.base.words import words

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, START, END)


@dataclass(frozen=True, slots=True)
class Document:
    """One text of the corpus. Control tokens stand in it as they are spelled."""

    domain: str
    text: str


def message(role: str, content: str) -> str:
    """A ChatML message."""
    return f"{START}{role}\n{content}{END}\n"


def plain(rng: Random) -> str:
    """One or two plain pages."""
    return "\n\n".join(rng.choice(PLAIN)(rng) for _ in range(rng.randint(1, 2)))


def chat(rng: Random) -> str:
    """Two to four exchanges of small talk."""
    exchanges = (rng.choice(CHAT)(rng) for _ in range(rng.randint(2, 4)))
    return "".join(message("user", asked) + message("assistant", said) for asked, said in exchanges)


def transcript(rng: Random) -> str:
    """A terminal's page."""
    tree = Tree(rng, num_files=rng.randint(2, 5), num_dirs=rng.randint(0, 2))
    exchanges = [shell.ls(tree)] if rng.random() < 0.5 else []
    exchanges += [act(tree) for _ in range(rng.randint(3, 7))]
    return "\n".join(_typed(exchange) for exchange in exchanges)


def _typed(exchange: Exchange) -> str:
    return "\n".join(filter(None, [f"$ {exchange.command}", exchange.output]))


def _observed(exchange: Exchange) -> str:
    """What a tool message shows of an exchange."""
    return "\n".join(filter(None, [exchange.output, f"[exit {exchange.exit_code}]" if exchange.exit_code else ""]))


def _session(opening: str, exchanges: list[Exchange]) -> str:
    turns = (message("assistant", e.command) + message("tool", _observed(e)) for e in exchanges)
    return message("user", opening) + "".join(turns) + message("assistant", "exit")


def framed_listing(rng: Random) -> str:
    """The user shows what is there; the assistant works on it."""
    tree = Tree(rng, num_files=rng.randint(2, 5), num_dirs=rng.randint(0, 2))
    listing = tree.listing()
    opening = rng.choice((listing, f"$ ls\n{listing}", " ".join(listing.split("\n"))))
    return _session(opening, [act(tree) for _ in range(rng.randint(2, 6))])


def framed_continuation(rng: Random) -> str:
    """The user shows the start of a transcript; the assistant goes on with commands of the same kinds."""
    tree = Tree(rng, num_files=rng.randint(3, 5), num_dirs=1)
    kinds = tuple(rng.choice(shell.ACTIONS) for _ in range(rng.randint(1, 2)))
    kinds += (shell.cat, shell.ls)  # so that a kind that the tree does not allow never leaves us without one
    shown = [act(tree, kinds) for _ in range(rng.randint(2, 3))]
    return _session("\n".join(map(_typed, shown)), [act(tree, kinds) for _ in range(rng.randint(2, 4))])


def framed_mention(rng: Random) -> str:
    """The user mentions names and words; they come back, in their order, as the operands of commands."""
    tree = Tree(rng, num_files=rng.randint(2, 4), num_dirs=rng.randint(0, 1))
    exchanges = [act(tree) for _ in range(rng.randint(1, 4))]
    names = list(dict.fromkeys(name for exchange in exchanges for name in _operands(exchange.command)))
    if rng.random() < 0.3:
        rng.shuffle(names)
    return _session(mention(rng, names or words(rng, 2)), exchanges)


_NAME = re.compile(r"[A-Za-z0-9_./-]+")


def _operands(command: str) -> list[str]:
    """The words and names of a command line, without its command, options and operators."""
    rest = command.split(" ", 1)[1] if " " in command else ""
    found = [name for part in rest.split(" ") for name in _NAME.findall(part.replace("\\n", " "))]
    return [name for name in found if len(name) > 2 and not name.startswith("-") and not name.isdigit()]


def framed_reading(rng: Random) -> str:
    """What a command shows is used by the next one: words that the user never wrote."""
    tree = Tree(rng, num_files=rng.randint(1, 3), num_dirs=1)
    exchanges = [exchange for _ in range(rng.randint(1, 3)) for exchange in read_and_use(tree)]
    shown = {name for exchange in exchanges for name in _NAME.findall(exchange.output)}
    names = dict.fromkeys(name for exchange in exchanges for name in _operands(exchange.command) if name not in shown)
    return _session(mention(rng, [*names] or words(rng, 2)), exchanges)


DOMAINS: dict[str, tuple[Callable[[Random], str], float]] = {
    "plain": (plain, 0.2),
    "chat": (chat, 0.22),
    "transcript": (transcript, 0.12),
    "framed_listing": (framed_listing, 0.1),
    "framed_continuation": (framed_continuation, 0.05),
    "framed_mention": (framed_mention, 0.17),
    "framed_reading": (framed_reading, 0.14),
}
"""Generator and share of documents by domain."""


def documents(seed: int, domain: str | None = None) -> Iterator[Document]:
    """The corpus (or one domain of it), endless and the same for the same seed."""
    rng = Random(seed)
    names = [domain] if domain else [*DOMAINS]
    weights = [DOMAINS[name][1] for name in names]
    while True:
        name = rng.choices(names, weights)[0]
        yield Document(name, DOMAINS[name][0](rng))


def corpus_digest(seed: int, num_documents: int = 5_000) -> str:
    """sha256 of the first documents: two corpora with the same digest come from the same code and seed."""
    digest = hashlib.sha256()
    for document in islice(documents(seed), num_documents):
        digest.update(f"{document.domain}\n{document.text}\0".encode())
    return digest.hexdigest()


__all__ = ["DOMAINS", "SPECIAL_TOKENS", "Document", "corpus_digest", "documents", "message"]
