"""Hidden requirements: what an assertion needs, the solution knows, and nobody tells the agent.

A literal is suspicious when it stands in the verifier *and* in the solution, and neither the instruction nor the
environment has it. What a verifier expects and a solution computes never stands in the solution, so that derived values
are no suspects. Boundary: reads texts; which values a shortcut explains is the caller's to say.
"""

from __future__ import annotations

import builtins
import datetime
import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from t1.synthesis.audit.python_syntax import VALUE, Constant, read_module
from t1.synthesis.audit.report import Kind, Reject
from t1.synthesis.audit.shell_syntax import Word, read_script
from t1.synthesis.audit.sources import Source, Sources, is_code

MIN_TOKEN = 2
MIN_LINE, MAX_LINES = 8, 400
_ARROW = re.compile(r"(?<=\w)\s*(=>|->|::|\|\|)\s*(?=\w)")
_GLUE = re.compile(rf"(?<=[{VALUE}\d])([-:])(?=[{VALUE}\d])")
_GLUED_VALUES = r"[}}\w]{mark}[{{$%]"
"""A mark between two values that a program prints: `{{a}}-{{b}}`, `$a-$b`, `%d-%d`."""
_GLUED_TOLD = {"-": re.compile(r"[A-Z\d}>]-[A-Z\d{<]|\bdash|\bhyphen"), ":": re.compile(r"\w[}>]?:[{<]?\w|\bcolon")}
_MODE_TOLD = re.compile(
    r"\b(owner|permissions?|mode|modes|chmod|readable|writable|executable|private)\b", re.IGNORECASE
)
_MODE = re.compile(r"stat -c ['\"]?%a\b[^\n]{0,120}?= *['\"]?([0-7]{3,4})\b")
_TOKEN = re.compile(r"[A-Za-z_][\w-]*[A-Za-z0-9]|\d+(?:\.\d+)?")
_FILE_NAME = re.compile(r"[\w@+.-]*\w\.[A-Za-z]\w{0,7}")
_PATH = re.compile(r"~?/?(?:[\w@+.-]+/)*[\w@+.-]+")
_EXPANSION = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|\$\w+|\{[^{}]*\}")
_PERMISSION = re.compile(r"\b(owner|group|read|writ|execut|permission|mode|private|world)", re.IGNORECASE)
_COMMON = frozenset(
    """localhost http https utf utf-8 ascii 127.0.0.1 0.0.0.0 127.0 0.0 200 true false none null yes no ok passed failed
    txt json csv md log py sh js html xml yaml yml toml ini conf cfg db sql tar gz zip app root home tmp usr bin etc var
    opt srv dev logs verifier tests test reward ctrf stdout stderr get post head put error errors result results output
    file files line lines name names value values key keys text content data path status count total number list main
    python bash env date wc cat grep sed awk sort uniq cut head tail diff cmp ls cp mv rm mkdir touch chmod chown find
    xargs tr echo printf tee git jq make gcc curl wget node npm npx pip apt apt-get sqlite3 perl ruby timeout sleep kill
    stat ln tar gzip gunzip unzip openssl sha256sum md5sum base64 export cd set exit self args kwargs
    encoding""".split()
)
_KNOWN = _COMMON | set(keyword.kwlist) | set(dir(builtins)) | sys.stdlib_module_names
_SPELLED = dict(
    zip("zero one two three four five six seven eight nine ten eleven twelve".split(), range(13), strict=True)
)
_SEPARATORS = {
    ";": "semicolon", "|": "pipe", "\t": "tab", ":": "colon", ",": "comma", " ": "space", "#": "hash", "~": "tilde",
}  # fmt: skip
_MOMENT = datetime.datetime(2024, 11, 22, 10, 33, 44)
_LETTERS = (("YYYY", "2024"), ("MM", "11"), ("DD", "22"), ("HH", "10"), ("mm", "33"), ("SS", "44"), ("ss", "44"))


@dataclass(frozen=True, slots=True)
class Demand:
    """Something that the verifier needs to find."""

    text: str
    file: str
    line: int
    role: str
    """text, word, number, pattern, time, delimiter, name, shape, json, line, mode."""


def demands(sources: Sources) -> Iterator[Demand]:
    """Everything that the verifier's scripts and modules need, in the order of the files."""
    for source in sources.tests:
        if source.binary:
            continue
        if source.path.endswith(".py"):
            module = read_module(source.text)
            yield from _of_module(source, module.constants, module.writes)
            if module.uses_json:
                yield Demand("json", source.path, module.uses_json, "json")
        elif source.path.endswith((".sh", ".bash", ".bats")):
            script = read_script(source.text)
            yield from _of_script(source, script.literals, script.writes)
            yield from _modes(source)
        elif not is_code(source.path, source.text):
            yield from _of_fixture(source)


def _of_fixture(source: Source) -> Iterator[Demand]:
    """The lines of an expected file."""
    for number, line in enumerate(source.text.splitlines()[:MAX_LINES], 1):
        if len(line.strip()) >= MIN_LINE:
            yield Demand(line.strip(), source.path, number, "line")


def _modes(source: Source) -> Iterator[Demand]:
    """Modes that a test compares with, the usual ones left out."""
    for found in _MODE.finditer(source.text):
        if found[1] not in ("644", "755"):
            yield Demand(found[1], source.path, source.text.count("\n", 0, found.start()) + 1, "mode")


def _of_module(source: Source, constants: list[Constant], writes: set[str]) -> Iterator[Demand]:
    for constant in constants:
        if constant.value not in writes:
            yield Demand(constant.value, source.path, constant.line, constant.role)


def _of_script(source: Source, literals: list[Word], writes: set[str]) -> Iterator[Demand]:
    """A script's words, without what it writes itself and what belongs to its report."""
    for word in literals:
        if word.role not in ("target", "heredoc") and word.text not in writes and "/logs/verifier" not in word.text:
            yield Demand(word.text, source.path, word.line, "pattern" if word.role == "program" else "text")


class Statement:
    """What an agent is told and can find, ready to be asked."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.text = _squeezed(sources.stated)
        self._lower = self.text.lower()
        self._tokens = {token.lower() for token in _TOKEN.findall(sources.stated)}
        self._tokens |= {part for token in self._tokens for part in re.split(r"[-_]", token)}
        self._tokens |= {str(number) for word, number in _SPELLED.items() if word in self._tokens}
        self._solution = sources.solution_text
        self._solution_tokens = {token.lower() for token in _TOKEN.findall(self._solution)}
        dated = sources.stated
        for letters, digits in _LETTERS:
            dated = dated.replace(letters, digits)
        self._dated = dated

    def missing(self, demand: Demand) -> str:
        """What of a demand the solution knows and nobody states, or nothing."""
        match demand.role:
            case "json":
                return "" if "json" in self._lower or "json" not in self._solution.lower() else "the format JSON"
            case "delimiter":
                return self._missing_separator(demand.text)
            case "time":
                return self._missing_time(demand.text)
            case "pattern":
                return self._missing_shape(demand.text) or self._missing_token(re.sub(r"\\.|\[.*?\]", " ", demand.text))
            case "line":
                return self._missing_line(demand.text)
            case "mode":
                told = demand.text in self._tokens or _MODE_TOLD.search(self._sources.instruction)
                return "" if told else f"the mode {demand.text}"
            case "shape":
                return self._missing_glue(demand.text)
            case "number":
                return self._missing_number(demand.text)
        return self._missing_text(demand.text) or self._missing_arrow(demand.text) or self._missing_glue(demand.text)

    def _missing_text(self, text: str) -> str:
        plain = _EXPANSION.sub(VALUE, text).strip()
        if not plain or _squeezed(plain).lower() in self._lower:
            return ""
        if _PATH.fullmatch(plain) and ("/" in plain or _FILE_NAME.fullmatch(plain)):
            return self._missing_path(plain)
        if re.fullmatch(r"\d+(\.\d+)?", plain):
            return self._missing_number(plain)
        pieces = [piece.strip() for piece in re.split(rf"[{VALUE}\n]", plain)]
        whole = [p for p in pieces if len(p) >= 4 and re.search(r"[A-Za-z]{2}", p) and re.search(r"\W", p)]
        for piece in whole:
            if piece in self._solution and _squeezed(piece).lower() not in self._lower and not _PATH.fullmatch(piece):
                return repr(piece) if self._is_own(piece) else ""
        return self._missing_token(plain)

    def _missing_line(self, line: str) -> str:
        """A line of an expected file that the solution spells out and nobody states."""
        if _squeezed(line).lower() in self._lower or not re.search(r"[A-Za-z]{2}\W+[A-Za-z]{2}", line):
            return ""
        return repr(line) if line in self._solution else ""

    def _missing_arrow(self, text: str) -> str:
        """A mark between two values that a computed line has."""
        for mark in _ARROW.findall(text):
            if mark not in self._sources.instruction and re.search(rf"['\"]\s*{mark}\s*['\"]", self._solution):
                return f"the separator {mark!r}"
        return ""

    def _missing_glue(self, text: str) -> str:
        """A mark right between two values of a computed line, as in 10-19 or 10:19. Paths and URLs have their own."""
        for mark in () if "/" in text else _GLUE.findall(_EXPANSION.sub(VALUE, text)):
            printed = re.search(_GLUED_VALUES.format(mark=mark), self._solution)
            if printed and not _GLUED_TOLD[mark].search(self._sources.stated):
                return f"the separator {mark!r}"
        return ""

    def _is_own(self, piece: str) -> bool:
        """Whether a phrase is more than a command line or a path that two programs share by nature."""
        return not re.search(r"[|;$`<>{}()]|^-|/", piece) or not self._all_known(piece)

    def _all_known(self, piece: str) -> bool:
        return all(t.lower() in self._tokens or t.lower() in _KNOWN for t in _TOKEN.findall(piece))

    def _missing_path(self, path: str) -> str:
        if path.startswith(("/tests", "/logs", "/usr/bin", "/bin", "/dev", "/proc", "/etc/passwd")):
            return ""
        if path.startswith("/tmp/") and path not in self._solution:
            return ""
        for part in path.split("/"):
            told = part in self.text if part.isupper() else part.lower() in self._lower
            if len(part) < MIN_TOKEN or part.lower() in _KNOWN or told:
                continue
            if re.search(rf"(?<![\w.-]){re.escape(part)}(?![\w-])", self._solution):
                return f"the path {path}"
        return ""

    def _missing_token(self, text: str) -> str:
        for token in _TOKEN.findall(text):
            lower = token.lower()
            if len(token) < MIN_TOKEN or lower in self._tokens or lower in _KNOWN or lower in self._lower:
                continue
            if token[0].isdigit():
                if found := self._missing_number(token):
                    return found
            elif lower in self._solution_tokens:
                return repr(token)
        return ""

    def _missing_number(self, number: str) -> str:
        if len(number) < MIN_TOKEN or number in _KNOWN or number in self._tokens or number in self.text:
            return ""
        if re.fullmatch(r"0?o?[0-7]{3,4}", number) and _PERMISSION.search(self._sources.instruction):
            return ""
        return number if re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", self._solution) else ""

    def _missing_separator(self, separator: str) -> str:
        name = _SEPARATORS.get(separator, separator)
        told = separator in self._sources.instruction or name in self._sources.instruction.lower()
        if separator == "," or told or (separator == "\t" and "tsv" in self._lower):
            return ""
        return f"the separator {separator!r}" if separator in self._solution else ""

    def _missing_shape(self, pattern: str) -> str:
        """A pattern that asks for the shape of a date or time which no text shows."""
        if r"\d{4}" not in pattern or r"\d{2}" not in pattern:
            return ""
        try:
            return "" if re.search(pattern.strip("^$"), self._dated) else f"the format {pattern}"
        except re.error:
            return ""

    def _missing_time(self, form: str) -> str:
        sample = _MOMENT.strftime(form)
        return "" if form in self.text or sample in self._dated or "iso" in self._lower else f"the format {form}"


def hidden_requirements(sources: Sources, excused: str = "") -> list[Reject]:
    """A reject for every distinct thing that is missing; what stands in `excused` is another fault's doing."""
    if not sources.solution:
        return []
    statement, found = Statement(sources), dict[str, Reject]()
    for demand in demands(sources):
        missing = statement.missing(demand)
        if missing and missing not in found and missing.strip("'\"") not in excused:
            reason = f"the verifier needs {missing}, which neither instruction nor environment states"
            found[missing] = Reject(Kind.HIDDEN_REQUIREMENT, demand.file, demand.line, reason)
    return list(found.values())


def _squeezed(text: str) -> str:
    """Runs of white space as one space."""
    return re.sub(r"\s+", " ", text)
