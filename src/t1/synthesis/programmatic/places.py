# ruff: noqa: E501  (sentences and command lines stay in one piece)
"""Steps on directories: files, archives, permissions."""

from __future__ import annotations

import gzip
import io
import tarfile

from t1.synthesis.programmatic.scene import Check, Lines, Move, Scene, Tree
from t1.synthesis.programmatic.steps import Unfit, step


def _list(s: Scene, sentence: str, command: str, names: list[str]) -> Move:
    """The move of a step that writes a sorted list of paths."""
    if not names:
        raise Unfit
    path = s.name(".txt")
    text = "".join(f"{name}\n" for name in sorted(names))
    return s.wrote(sentence.format(target=path), f"{command} | LC_ALL=C sort > {path}", path, text)


def _kinds(v: Tree) -> list[str]:
    """Suffixes that some of the files have."""
    return sorted({name.rpartition(".")[2] for name, _ in v.files if "." in name.rpartition("/")[2]})


@step("files", "tree", "lines")
def files_of_kind(s: Scene, v: Tree) -> Move:
    """Find by suffix."""
    kind = s.rng.choice(_kinds(v) or [""])
    names = [f"{v.path}/{name}" for name, _ in v.files if name.endswith(f".{kind}")]
    if not kind or len(names) == len(v.files):
        raise Unfit
    said, shell = s.given("suffix", kind)
    sentence = s.say(
        f"List the files below {v.path} (at any depth) with the suffix {said}, as paths that begin with {v.path}/, sorted "
        "(LC_ALL=C), in {target}.",
        f"Find everything below {v.path} whose name ends with a dot and {said}; the sorted paths (from {v.path}/ on) go to {{target}}.",
    )
    return _list(s, sentence, f"find {v.path} -type f -name '*.'{shell}", names)


@step("files", "tree", "lines", 2)
def files_with_word(s: Scene, v: Tree) -> Move:
    """Find by content."""
    found = sorted({word for _, text in v.files for word in text.split() if word.isalpha()})
    if not found:
        raise Unfit
    word = s.rng.choice(found)
    names = [f"{v.path}/{name}" for name, text in v.files if word in text.split()]
    if len(names) == len(v.files):
        raise Unfit
    said, shell = s.given("word", word)
    sentence = s.say(
        f"Which files below {v.path} contain the word {said}? Write their paths, sorted (LC_ALL=C), from {v.path}/ on, to {{target}}.",
        f"Search all files below {v.path} for {said} as a whole word and list those that have it in {{target}} (paths from "
        f"{v.path}/ on, in byte order).",
    )
    return _list(s, sentence, f"grep -rlwF -- {shell} {v.path}", names)


@step("files", "tree", "lines", 2)
def sizes(s: Scene, v: Tree) -> Move:
    """Lines of each file."""
    path = s.name(".txt")
    sentence = s.say(
        f"For every file below {v.path}, write its path (from {v.path}/ on), a space and its number of lines to {path}, in byte order.",
        f"{path} lists the files below {v.path}: path from {v.path}/ on, one space, how many lines; sorted with LC_ALL=C.",
    )
    text = "".join(sorted(f"{v.path}/{name} {body.count(chr(10))}\n" for name, body in v.files))
    line = f'find {v.path} -type f | while read -r f; do echo "$f $(wc -l < "$f")"; done | LC_ALL=C sort > {path}'
    return s.wrote(sentence, line, path, text)


@step("files", "tree", "tree", 2)
def gathered(s: Scene, v: Tree) -> Move:
    """Move the files of one kind together."""
    kind = s.rng.choice(_kinds(v) or [""])
    chosen = [(name, body) for name, body in v.files if name.endswith(f".{kind}")]
    bare = [name.rpartition("/")[2] for name, _ in chosen]
    if not kind or len(set(bare)) < len(bare) or len(chosen) == len(v.files) or not _is_source(s, v):
        raise Unfit
    top = s.name()
    said, shell = s.given("suffix", kind)
    checks = [check for name, body in chosen for check in s.holds(f"{top}/{name.rpartition('/')[2]}", body)[-1:]]
    gone = " && ".join(f"[ ! -e /app/{v.path}/{name} ]" for name, _ in chosen)
    checks.append(Check(f"{v.path} has lost what was moved", f"[ -d /app/{top} ] && {gone}"))
    sentence = s.say(
        f"Move every file below {v.path} (at any depth) that has the suffix {said} into one new directory {top}, under its own name.",
        f"Make the directory {top} and move all files with the suffix {said} from anywhere below {v.path} right into it.",
    )
    line = f"mkdir {top} && find {v.path} -type f -name '*.'{shell} -exec mv {{}} {top}/ ';'"
    files = tuple(sorted((name.rpartition("/")[2], body) for name, body in chosen))
    return Move(sentence, (line,), tuple(checks), Tree(top, files))


@step("files", "tree", "tree", 2)
def given_suffix(s: Scene, v: Tree) -> Move:
    """Rename all files of a kind."""
    kind = s.rng.choice(_kinds(v) or [""])
    new = s.rng.choice([k for k in ("bak", "old", "note", "text") if k != kind])
    chosen = {name for name, _ in v.files if name.endswith(f".{kind}")}
    if not kind or not chosen or not _is_source(s, v):
        raise Unfit
    said, shell = s.given("new suffix", new)
    turned = {name: name.removesuffix(kind) + new if name in chosen else name for name, _ in v.files}
    files = tuple(sorted((turned[name], body) for name, body in v.files))
    some = [f"{v.path}/{turned[name]}" for name in sorted(chosen)]
    held = dict(files)
    checks = [c for path in some for c in s.holds(path, held[path.removeprefix(f"{v.path}/")])[-1:]]
    old = " && ".join(f"[ ! -e /app/{v.path}/{name} ]" for name in sorted(chosen))
    checks.append(Check(f"no .{kind} is left in {v.path}", f"[ -f /app/{some[-1]} ] && {old}"))
    sentence = s.say(
        f"Rename every .{kind} file below {v.path}: the suffix {kind} becomes {said}; the rest of the name stays.",
        f"Below {v.path}, change the suffix of every .{kind} file (what follows the last dot) to {said}.",
    )
    line = f'find {v.path} -type f -name \'*.{kind}\' | while read -r f; do mv "$f" "${{f%.{kind}}}."{shell}; done'
    return Move(sentence, (line,), tuple(checks), Tree(v.path, files))


@step("files", "tree", "lines")
def run_together(s: Scene, v: Tree) -> Move:
    """All contents in one file."""
    path = s.name(".txt")
    sentence = s.say(
        f"Join all files below {v.path}, in the byte order of their paths, into {path}.",
        f"{path} is everything below {v.path} one after the other, the files sorted by path (LC_ALL=C).",
    )
    text = "".join(body for _, body in sorted((f"{v.path}/{name}", body) for name, body in v.files))
    return s.wrote(sentence, f"find {v.path} -type f | LC_ALL=C sort | xargs cat > {path}", path, text)


@step("files", "lines", "tree")
def made_directories(s: Scene, v: Lines) -> Move:
    """A directory for each line."""
    names = sorted({line.split()[0] for line in v.lines if line.strip()})
    if not all(name.isascii() and name.replace("-", "").isalnum() for name in names) or len(names) < 2:
        raise Unfit
    top = s.name()
    checks = tuple(
        Check(
            f"{top}/{n}/README holds its name",
            f'[ -f /app/{top}/{n}/README ] && [ "$(cat /app/{top}/{n}/README)" = {n} ]',
        )
        for n in names
    )
    sentence = s.say(
        f"For the first word of every line of {v.path}, make a directory of that name in {top}, with a file README that holds the word.",
        f"Make {top}/WORD/README, holding WORD itself, for each first word WORD of a line of {v.path}.",
    )
    line = f'cut -d" " -f1 {v.path} | sort -u | while read -r w; do mkdir -p "{top}/$w" && echo "$w" > "{top}/$w/README"; done'
    return Move(sentence, (line,), checks, Tree(top, tuple((f"{n}/README", f"{n}\n") for n in names)))


@step("archives", "tree", "end")
def packed(s: Scene, v: Tree) -> Move:
    """Pack a directory."""
    path = s.name(".tar.gz")
    listed = [f"{v.path}/{name}" for name, _ in v.files]
    number = f"expected/{len(s.expected):02d}"
    s.expected[number] = "".join(sorted(f"{name}\n" for name in listed))
    names = f"tar -tzf /app/{path} | sed 's|^[.]/||' | grep -v '/$' | LC_ALL=C sort"
    one, body = s.rng.choice(v.files)
    checks = (
        Check(f"{path} packs every file of {v.path}", f'[ -f /app/{path} ] && [ "$({names})" = "$(cat /tests/{number})" ]'),
        Check(f"{path} has the contents too", f'[ -f /app/{path} ] && [ "$(tar -xzOf /app/{path} {v.path}/{one})" = "{body.rstrip(chr(10))}" ]'),
    )  # fmt: skip
    sentence = s.say(
        f"Pack the directory {v.path} into the gzipped tar archive {path}, with paths that begin with {v.path}/.",
        f"Make {path}, a compressed tar of {v.path} (run from /app, so that its members are {v.path}/...).",
    )
    return Move(sentence, (f"tar -czf {path} {v.path}",), checks)


def _archive(s: Scene, tree: Tree, path: str) -> None:
    """Replace the files of a source by an archive of them, the same bytes every time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for name, body in tree.files:
            del s.files[f"{tree.path}/{name}"]
            member = tarfile.TarInfo(f"{tree.path}/{name}")
            member.size, member.mtime = len(body.encode()), 1_700_000_000
            packed.addfile(member, io.BytesIO(body.encode()))
    s.files[path] = gzip.compress(buffer.getvalue(), mtime=0)


def _is_source(s: Scene, v: Tree) -> bool:
    """Whether the tree is in the environment still as it was put there."""
    return all(s.files.get(f"{v.path}/{name}") == body for name, body in v.files)


@step("archives", "tree", "tree")
def unpacked(s: Scene, v: Tree) -> Move:
    """Unpack an archive that stands in for the directory."""
    if not _is_source(s, v):
        raise Unfit
    path, top = s.name(".tar.gz"), s.name()
    _archive(s, v, path)
    tree = Tree(f"{top}/{v.path}", v.files)
    checks = [check for name, body in v.files for check in s.holds(f"{tree.path}/{name}", body)[-1:]]
    sentence = s.say(
        f"Unpack {path} into the new directory {top}, so that its members lie at {tree.path}/.",
        f"{path} holds {v.path}/. Extract it below {top} (make it), which gives {tree.path}/.",
    )
    return Move(sentence, (f"mkdir {top}", f"tar -xzf {path} -C {top}"), tuple(checks), tree)


@step("archives", "tree", "lines")
def members(s: Scene, v: Tree) -> Move:
    """List an archive."""
    if not _is_source(s, v):
        raise Unfit
    archive = s.name(".tar.gz")
    _archive(s, v, archive)
    sentence = s.say(
        f"List the members of {archive}, sorted (LC_ALL=C), in {{target}}.",
        f"What is in {archive}? Write its members' names in byte order to {{target}}.",
    )
    return _list(s, sentence, f"tar -tzf {archive}", [f"{v.path}/{name}" for name, _ in v.files])


@step("archives", "tree", "lines", 2)
def one_member(s: Scene, v: Tree) -> Move:
    """Take one file out of an archive."""
    if not _is_source(s, v):
        raise Unfit
    archive, path = s.name(".tar.gz"), s.name(".txt")
    _archive(s, v, archive)
    name, body = s.rng.choice(v.files)
    said, shell = s.given("member", f"{v.path}/{name}")
    sentence = s.say(
        f"Without unpacking the rest, write the content of the member {said} of {archive} to {path}.",
        f"{archive} has the member {said}; its content goes to {path}.",
    )
    return s.wrote(sentence, f"tar -xzOf {archive} {shell} > {path}", path, body)


@step("permissions", "tree", "end")
def locked(s: Scene, v: Tree) -> Move:
    """A mode for every file of a kind."""
    kind = s.rng.choice(_kinds(v) or [""])
    mode = s.rng.choice(("600", "640", "440", "400", "660"))
    chosen = [name for name, _ in v.files if name.endswith(f".{kind}")]
    if not kind or not chosen:
        raise Unfit
    said, shell = s.given("mode", mode)
    file = [f"/app/{v.path}/{name}" for name in chosen]
    checks = [Check(f"{f[5:]} has the mode", f'[ "$(stat -c %a {f})" = {mode} ]') for f in file]
    sentence = s.say(
        f"Set the mode {said} (octal) on every .{kind} file below {v.path}, on nothing else.",
        f"All files below {v.path} that end with .{kind} must have the octal mode {said}; leave the others alone.",
    )
    others = [f"/app/{v.path}/{name}" for name, _ in v.files if name not in chosen][:4]
    if others:
        kept = " && ".join(f'[ "$(stat -c %a {f})" != {mode} ]' for f in others)
        checks.append(
            Check(f"only .{kind} files of {v.path} have it", f'[ "$(stat -c %a {file[0]})" = {mode} ] && {kept}')
        )
    return Move(sentence, (f"find {v.path} -type f -name '*.{kind}' -exec chmod {shell} {{}} +",), tuple(checks))


@step("permissions", "tree", "lines", 2)
def with_mode(s: Scene, v: Tree) -> Move:
    """Find by mode."""
    if not _is_source(s, v) or len(v.files) < 4:
        raise Unfit
    mode = s.rng.choice(("700", "750", "664", "600"))
    chosen = sorted(s.rng.sample([name for name, _ in v.files], s.rng.randint(2, len(v.files) - 2)))
    s.runs.append(f"chmod {mode} " + " ".join(f"/app/{v.path}/{name}" for name in chosen))
    said, shell = s.given("mode", mode)
    sentence = s.say(
        f"Which files below {v.path} have exactly the octal mode {said}? Their paths, from {v.path}/ on and sorted (LC_ALL=C), go to {{target}}.",
        f"List in {{target}} the files below {v.path} whose permissions are {said} (octal, exactly): paths from {v.path}/ on, byte order.",
    )
    return _list(s, sentence, f"find {v.path} -type f -perm {shell}", [f"{v.path}/{name}" for name in chosen])


@step("permissions", "lines", "end", 2)
def by_manifest(s: Scene, v: Lines) -> Move:
    """Modes from a list."""
    words = sorted({line.split()[0] for line in v.lines if line.split()})
    names = [word for word in words if word.isascii() and word.isalpha()][:5]
    if len(names) < 2:
        raise Unfit
    top, manifest = s.name(), s.name(".list")
    modes = {name: s.rng.choice(("600", "640", "700", "755", "444")) for name in names}
    modes[names[0]] = "600"
    s.files |= {f"{top}/{name}": f"{name}\n" for name in names}
    s.files[manifest] = "".join(f"{mode} {name}\n" for name, mode in modes.items())
    checks = tuple(
        Check(f"{top}/{n} has the mode of the list", f'[ "$(stat -c %a /app/{top}/{n})" = {m} ]')
        for n, m in modes.items()
    )
    sentence = s.say(
        f"Every line of {manifest} is an octal mode and the name of a file in {top}. Give each file its mode.",
        f"Apply {manifest} (lines of an octal mode and a file name) to the files in {top}.",
    )
    return Move(sentence, (f'while read -r mode file; do chmod "$mode" "{top}/$file"; done < {manifest}',), checks)
