# ruff: noqa: E501  (sentences and command lines stay in one piece)
"""Steps on git repositories, services and scripts: what needs more than one command to see."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable

from t1.synthesis.programmatic.scene import Check, Lines, Move, Scene, Tree
from t1.synthesis.programmatic.steps import Unfit, step

_GIT = "git -c user.name=dev -c user.email=dev@localhost"
_IGNORED = "-c safe.directory='*'"


def _repository(s: Scene, v: Lines) -> tuple[str, list[tuple[str, str, str]]]:
    """A repository in the environment: its path, and (message, author, file) of its commits, oldest first."""
    words = list(dict.fromkeys(line.split()[0].lower() for line in v.lines if line.split()))
    words = [word for word in words if word.isascii() and word.isalpha()]
    if len(words) < 3:
        raise Unfit
    s.needs.add("git")
    top = s.name()
    authors, verbs = s.rng.sample(("ada", "bob", "eve", "joe", "kim"), 2), ("add", "fix", "drop", "move", "test")
    commits = [(f"{s.rng.choice(verbs)} {word}", s.rng.choice(authors), f"{word}.txt") for word in words[:6]]
    script = [f"git init -q -b main /app/{top} && cd /app/{top}"]
    for number, (message, author, file) in enumerate(commits):
        date = f"2024-01-{number + 1:02d}T12:00:00+0000"
        env = f"GIT_AUTHOR_DATE={date} GIT_COMMITTER_DATE={date}"
        who = f"git -c user.name={author} -c user.email={author}@localhost"
        script.append(
            f"echo {message.split()[1]} {number} > {file} && git add {file} && {env} {who} commit -qm '{message}'"
        )
    s.runs.append(" && ".join(script))
    return top, commits


@step("git", "lines", "lines", 2)
def history(s: Scene, v: Lines) -> Move:
    """The subjects of the commits."""
    top, commits = _repository(s, v)
    path = s.name(".txt")
    sentence = s.say(
        f"Write the subject lines of all commits of the git repository {top} to {path}, oldest first.",
        f"{path} lists what was committed in the repository {top}: one subject a line, in the order of the commits.",
    )
    text = "".join(f"{message}\n" for message, _, _ in commits)
    return s.wrote(sentence, f"git -C {top} log --reverse --format=%s > {path}", path, text)


@step("git", "lines", "lines", 2)
def by_author(s: Scene, v: Lines) -> Move:
    """The commits of one person."""
    top, commits = _repository(s, v)
    author = s.rng.choice(commits)[1]
    path = s.name(".txt")
    said, shell = s.given("author", author)
    sentence = s.say(
        f"Which commits of the git repository {top} are by {said}? Write their subjects, oldest first, to {path}.",
        f"From the history of the repository {top}, list the subjects of the commits whose author is {said} in {path}, oldest first.",
    )
    text = "".join(f"{message}\n" for message, name, _ in commits if name == author)
    return s.wrote(sentence, f"git -C {top} log --reverse --format=%s --author={shell} > {path}", path, text)


@step("git", "lines", "lines", 3)
def as_it_was(s: Scene, v: Lines) -> Move:
    """The files of an earlier commit."""
    top, commits = _repository(s, v)
    number = s.rng.randrange(1, len(commits) - 1)
    message, path = commits[number][0], s.name(".txt")
    if [m for m, _, _ in commits].count(message) > 1:
        raise Unfit
    said, shell = s.given("subject", message)
    sentence = s.say(
        f"List the files that the git repository {top} had right after the commit with the subject {said}, sorted (LC_ALL=C), in {path}.",
        f"{path} names all files of the repository {top} as of the commit {said} (its subject), in byte order.",
    )
    text = "".join(f"{file}\n" for file in sorted(file for _, _, file in commits[: number + 1]))
    find = f'"$(git -C {top} log --format=%H --fixed-strings --grep={shell})"'
    return s.wrote(sentence, f"git -C {top} ls-tree -r --name-only {find} | LC_ALL=C sort > {path}", path, text)


@step("git", "lines", "end", 3)
def branched(s: Scene, v: Lines) -> Move:
    """A commit on a branch of its own."""
    top, _ = _repository(s, v)
    branch, word, (message, name) = s.name(), s.words(1)[0], (f"note {s.rng.choice(s.words(3))}", "NOTES")
    said, shell = s.given("name", branch)
    git = f"git {_IGNORED} -C /app/{top}"
    checks = (
        Check(f"{top} has the branch", f"{git} rev-parse --verify refs/heads/{branch}"),
        Check("its last commit has the message", f'[ "$({git} log -1 --format=%s refs/heads/{branch})" = {shlex.quote(message)} ]'),
        Check("it adds the file", f'[ "$({git} show refs/heads/{branch}:{name})" = {word} ]'),
        Check("nothing is left uncommitted", f'{git} rev-parse --verify refs/heads/{branch} && [ -z "$({git} status --porcelain)" ]'),
        Check("main stays as it was", f'{git} rev-parse --verify refs/heads/{branch} && [ "$({git} rev-parse {branch}^)" = "$({git} rev-parse main)" ]'),
    )  # fmt: skip
    sentence = s.say(
        f'In the git repository {top}, start a branch from main, by the name {said}, and commit a file {name} that says "{word}" there, '
        f'with the message "{message}". Leave main as it is, and nothing uncommitted.',
        f'Add one commit "{message}" to the repository {top}: a file {name} with the word "{word}", on a new branch off main by the name {said}. Afterwards the working tree is clean.',
    )
    lines = (
        f"git -C {top} checkout -q -b {shell} main",
        f"echo {word} > {top}/{name}",
        f"git -C {top} add {name}",
        f"{_GIT} -C {top} commit -q -m {shlex.quote(message)}",
    )
    return Move(sentence, lines, checks)


@step("git", "tree", "end", 2)
def committed(s: Scene, v: Tree) -> Move:
    """A directory becomes a repository."""
    s.needs.add("git")
    message, tag = f"begin with {v.path}", f"v{s.rng.randint(1, 9)}.{s.rng.randint(0, 9)}"
    said, shell = s.given("tag", tag)
    git = f"git {_IGNORED} -C /app/{v.path}"
    number = f"expected/{len(s.expected):02d}"
    s.expected[number] = "".join(sorted(f"{name}\n" for name, _ in v.files))
    checks = (
        Check(f"{v.path} has one commit with the message", f'[ "$({git} log --format=%s)" = {shlex.quote(message)} ]'),
        Check("every file is in it", f'[ "$({git} ls-tree -r --name-only HEAD | LC_ALL=C sort)" = "$(cat /tests/{number})" ]'),
        Check("nothing is left uncommitted", f'{git} rev-parse --verify HEAD && [ -z "$({git} status --porcelain)" ]'),
        Check("the tag stands on it", f'{git} rev-parse --verify HEAD && [ "$({git} rev-parse refs/tags/{tag}^{{commit}})" = "$({git} rev-parse HEAD)" ]'),
    )  # fmt: skip
    sentence = s.say(
        f'Make {v.path} a git repository with all of its files in a single commit, "{message}", and give that commit the tag {said}; the working tree is clean then.',
        f'Put the directory {v.path} under git: one commit of everything in it, with the message "{message}", with the tag {said}, and nothing left to commit.',
    )
    lines = (
        f"git init -q -b main {v.path}",
        f"git -C {v.path} add -A",
        f"{_GIT} -C {v.path} commit -q -m {shlex.quote(message)}",
        f"git -C {v.path} tag {shell}",
    )
    return Move(sentence, lines, checks)


_SERVER = '''"""Answers GET /NAME with what NAME is worth today. Usage: python3 %(path)s; the port stands in %(config)s."""
import configparser, hashlib, socketserver

config = configparser.ConfigParser()
config.read("/app/%(config)s")


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        request = self.rfile.readline().split()
        while self.rfile.readline().strip():
            pass
        if len(request) > 1:
            word = config["service"]["salt"] + request[1].decode()[1:]
            body = hashlib.sha256(word.encode()).hexdigest()[:8].encode() + b"\\n"
            self.wfile.write(b"HTTP/1.0 200 OK\\r\\nContent-Length: %%d\\r\\n\\r\\n%%s" %% (len(body), body))


socketserver.TCPServer.allow_reuse_address = True
socketserver.TCPServer(("127.0.0.1", int(config["service"]["port"])), Answer).serve_forever()
'''
_ASK = r"""# ask.sh SERVER PORT NAME...: the service of this process id says what each NAME is worth. It may still be starting:
# it is waited for while it runs, ten seconds at most.
server=$1; port=$2; shift 2
for attempt in {1..100}; do (: < "/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; kill -0 "$server" || exit 1; sleep 0.1; done
for name in "$@"; do
  exec 3<> "/dev/tcp/127.0.0.1/$port" && printf 'GET /%s HTTP/1.0\r\n\r\n' "$name" >&3 && sed '1,/^\r*$/d' <&3
done
"""


def _service(s: Scene, port: str) -> tuple[str, str, str]:
    """A service in the environment: its program, its configuration, its salt."""
    s.needs.add("python3")
    path, config, salt = s.name(".py"), s.name(".ini"), "-".join(s.words(2))
    s.files[path] = _SERVER % {"path": path, "config": config}
    s.files[config] = f"[service]\nport = {port}\nsalt = {salt}\n"
    return path, config, salt


def _worth(salt: str, name: str) -> str:
    return hashlib.sha256((salt + name).encode()).hexdigest()[:8]


@step("services", "lines", "lines", 3)
def asked(s: Scene, v: Lines) -> Move:
    """Start a service and write down its answers."""
    names = sorted({line.split()[0] for line in v.lines if line.split() and line.split()[0].isalpha()})[:3]
    if not names:
        raise Unfit
    port = str(s.rng.randint(18000, 28000))
    path, config, salt = _service(s, port)
    target = s.name(".txt")
    listed = ", ".join(names)
    sentence = s.say(
        f"Start the service {path} (its port stands in {config}) and ask it for /NAME over HTTP for each of these names: {listed}. "
        f"Write its answers to {target}, one a line, in this order.",
        f"{path} is an HTTP service on 127.0.0.1, configured by {config}. Run it, request the paths /NAME for {listed}, and put the "
        f"answers into {target} in that order, one a line.",
    )
    url = f"/dev/tcp/127.0.0.1/{port}"
    lines = (
        f"python3 {path} >/dev/null 2>&1 & server=$!",
        f"for attempt in {{1..100}}; do (: < {url}) 2>/dev/null && break; kill -0 $server || break; sleep 0.1; done",
        f"for name in {' '.join(names)}; do",
        f"  exec 3<> {url} && printf 'GET /%s HTTP/1.0\\r\\n\\r\\n' $name >&3 && sed '1,/^\\r*$/d' <&3",
        f"done > {target}",
        "kill $server",
    )
    text = "".join(f"{_worth(salt, name)}\n" for name in names)
    return s.wrote(sentence, lines, target, text)


@step("services", "lines", "end", 3)
def configured(s: Scene, v: Lines) -> Move:
    """Mend the configuration of a service; the verifier starts it."""
    port, name = str(s.rng.randint(18000, 28000)), s.words(1)[0]
    path, config, salt = _service(s, "eighty")
    said, shell = s.given("port", port)
    new = "-".join(s.words(2))
    start = f"timeout 20 python3 /app/{path} >/dev/null 2>&1 & server=$!"
    s.expected["ask.sh"] = _ASK
    asking = f"answer=$(bash /tests/ask.sh $server {port} {name}); kill $server 2>/dev/null"
    checks = (
        Check(f"{config} has the port", f"grep -qE '^port *= *{port} *$' /app/{config}"),
        Check(f"{path} answers with the new salt", f'grep -q {port} /app/{config} && {{ {start}\n{asking}; [ "$answer" = {_worth(new, name)} ]; }}'),
    )  # fmt: skip
    sentence = s.say(
        f'The service {path} does not start, since the port in {config} is no number. Set it to {said}, and its salt from "{salt}" to '
        f'"{new}". (It is started for the check; it need not run on.)',
        f'Mend {config} so that {path} listens on port {said} with the salt "{new}" when somebody starts it; change nothing else.',
    )
    lines = (
        f'sed -i "s/^port = .*/port = "{shell}"/" {config}',
        f"sed -i 's/^salt = .*/salt = {new}/' {config}",
    )
    return Move(sentence, lines, checks)


_SCRIPTS: dict[str, tuple[str, Callable[[list[str]], str]]] = {
    "the number of lines of FILE": ('wc -l < "$1" | tr -d " "', lambda lines: str(len(lines))),
    "the last line of FILE in capital letters": (
        'tail -n 1 "$1" | LC_ALL=C tr a-z A-Z',
        lambda lines: lines[-1].upper(),
    ),
    "the first words of all lines of FILE, sorted (LC_ALL=C), without repeats": (
        'cut -d" " -f1 "$1" | LC_ALL=C sort -u',
        lambda lines: "\n".join(sorted({line.split()[0] for line in lines})),
    ),
    "the sum of the last words of all lines of FILE": (
        "awk '{t += $NF} END {print t}' \"$1\"",
        lambda lines: str(sum(int(line.split()[-1]) for line in lines)),
    ),
    "the lines of FILE from last to first": ('tac "$1"', lambda lines: "\n".join(lines[::-1])),
    "the longest line of FILE": (
        "awk 'length($0) > length(b) {b = $0} END {print b}' \"$1\"",
        lambda lines: max(lines, key=len),
    ),
}
"""What a script is to print → (its body, the same in Python)."""


@step("scripts", "lines", "end", 2)
def scripted(s: Scene, v: Lines) -> Move:
    """A script that is run on other files."""
    what = s.rng.choice(sorted(_SCRIPTS))
    body, says = _SCRIPTS[what]
    rows = [line.split() for line in v.lines]
    if any(len(row) < 2 or not row[-1].isdigit() for row in rows):
        raise Unfit
    path = f"{s.name()}.sh"
    checks = [Check(f"{path} can be run", f"[ -f /app/{path} ] && [ -x /app/{path} ]")]
    for number in range(3):
        given_lines = [f"{' '.join(s.words(2 + i % 3))} {s.rng.randint(2, 60)}" for i in range(3 + 2 * number)]
        given_lines[number] = f"{' '.join(s.words(9))} 7"
        given = f"inputs/{len(s.expected):02d}"
        s.expected[given] = "".join(f"{line}\n" for line in given_lines)
        answer = f"expected/{len(s.expected):02d}"
        s.expected[answer] = says(given_lines) + "\n"
        run = f'[ -x /app/{path} ] && said="$(timeout 10 /app/{path} /tests/{given})" && [ "$said" = "$(cat /tests/{answer})" ]'
        checks.append(Check(f"{path} is right on file {number + 1}", run))
    sentence = s.say(
        f"Write an executable bash script {path} that is called with one FILE like {v.path} and prints {what}. It is tried on other files.",
        f"Make {path}, a bash script that can be run and prints {what}, FILE being its only argument ({v.path} is an example of such a file).",
    )
    lines = (f"printf '%s\\n' '#!/bin/bash' {shlex.quote(body)} > {path}", f"chmod +x {path}")
    return Move(sentence, lines, tuple(checks))


@step("scripts", "lines", "lines", 2)
def repaired(s: Scene, v: Lines) -> Move:
    """A script with a fault, and what it should have written."""
    path, target = f"{s.name()}.sh", s.name(".txt")
    held = sorted({line.split()[0] for line in v.lines if line.split()})
    if len(held) < 2:
        raise Unfit
    fault, right = s.rng.choice(
        [("sort -ur", "sort -u"), ("sort ", "sort -u "), ("cut -d' ' -f9", "cut -d' ' -f1"), ("< input", f"< {v.path}")]
    )
    script = f"#!/bin/bash\ncd /app || exit 1\ncut -d' ' -f1 < {v.path} | LC_ALL=C sort -u > {target}\n"
    broken = script.replace(right, fault, 1)
    if broken == script:
        raise Unfit
    s.files[path] = broken
    number = f"expected/{len(s.expected):02d}"
    s.expected[number] = "".join(f"{word}\n" for word in held)
    s.runs.append(f"chmod +x /app/{path}")
    fresh = f'rm -f /app/{target}; timeout 10 /app/{path} && [ "$(cat /app/{target})" = "$(cat /tests/{number})" ]'
    checks = (*s.holds(target, s.expected[number])[-1:], Check(f"{path} itself is right now", fresh))
    sentence = s.say(
        f"{path} should write every different first word of {v.path}, sorted (LC_ALL=C), to {target}, but has a fault. Mend it and run it.",
        f"Something is wrong in {path}: it is meant to put the first words of {v.path}, each once and in byte order, into {target}. "
        "Mend the script, then run it.",
    )
    lines = (f"printf '%s\\n' {' '.join(shlex.quote(line) for line in script.splitlines())} > {path}", f"bash {path}")
    return Move(sentence, lines, checks, Lines(target, tuple(held)))
