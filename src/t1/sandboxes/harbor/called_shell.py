"""A long-lived bash for machines that only offer `exec`, where every call is a process of its own.

A bash in the background reads the names of commands from a pipe; a call hands one over, waits for its end, and prints
what became of it in a frame that no other output can be taken for. Boundary: text of scripts out, text of frames in;
nothing is started here. The machine needs bash, coreutils and /proc.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from dataclasses import dataclass

from t1.sandboxes.dockerfile import DEFAULT_WORKDIR
from t1.sandboxes.endings import COME_BACK_S, FLOOD_BYTES

PLACE = "/logs/.t1"
"""The shell's pipes and files: below /logs, of which nothing is carried anywhere."""
MAX_INLINE_CHARS = 48 << 10
"""A longer command travels as a file: one argument of a program is at most 128 KiB."""

# Kills what started at $1 (clock ticks) or later and prints `pid words`. Process 1, whoever calls, the pids after $1
# and whoever started them are spared: a provider may have servants of its own among the processes.
_QUIET = r"""
since=$1; shift; spared=" 1 "; told=" "
for p in $BASHPID "$@"; do
  while [ "${p:-0}" -gt 1 ]; do
    spared="$spared$p "; line=; IFS= read -r -d '' line <"/proc/$p/stat"; set -- ${line##*) }; p=$2
  done 2>/dev/null
done
for round in {1..40}; do
  killed=; [ $round -lt 4 ] || sleep 0.05
  for folder in /proc/[0-9]*; do
    line=; IFS= read -r -d '' line <"$folder/stat"; set -- ${line##*) }
    [ "${20:-0}" -ge "$since" ] && [ "$1" != Z ] && [ "$1" != X ] || continue
    pid=${folder#/proc/}; case "$spared" in *" $pid "*) continue ;; esac
    words=; while IFS= read -r -d '' word; do words="$words$word "; done <"$folder/cmdline"
    kill -9 "$pid" && killed=1 || continue
    case "$told" in *" $pid "*) ;; *) told="$told$pid "; printf '%s %s\n' "$pid" "${words:0:300}" ;; esac
  done 2>/dev/null
  [ -n "$killed" ] || exit 0
done
exit 1
"""

# The shell and whoever waits for it. A kill takes a moment, and what is still dying has not outlived the agent.
_END = r"""
pid=; IFS= read -r pid <@P@/pid; line=; IFS= read -r -d '' line <"/proc/${pid:-none}/stat"; set -- ${line##*) }
set -- $2 $pid
for p in "$@"; do [ "$p" -gt 1 ] && kill -9 "$p"; done
for p in "$@"; do
  for round in {1..200}; do
    line=; IFS= read -r -d '' line <"/proc/$p/stat"; set -- ${line##*) }
    case "${1:-X}" in Z | X) break ;; esac
    sleep 0.01
  done
done
"""

# $1: where to stand, $2: where else. Commands see neither pipe, and a full disk only loses them their output.
_LOOP = r"""
cd -- "$1" 2>/dev/null || { mkdir -p -- "$2" 2>/dev/null; cd -- "$2" 2>/dev/null; } || cd /
echo 1000 2>/dev/null >/proc/self/oom_score_adj
exec 250<>@P@/in 251<>@P@/done
builtin printf '%s\n' "$$" >@P@/pid
builtin printf 'ready 0 %s\n' "${PWD//$'\n'/?}" >&251
builtin declare -r T1_QUIET="bash @P@/rest $$"
set --
while IFS= builtin read -r _t1_word <&250; do
  IFS= builtin read -r -d '' _t1 <@P@/cmd
  : >@P@/out
  builtin eval "$_t1" </dev/null >>@P@/out 2>&1 250<&- 251<&-
  _t1="$_t1_word $? ${PWD//$'\n'/?}"
  builtin printf '%s\n' "$_t1" 2>/dev/null >@P@/end
  builtin printf '%s\n' "$_t1" >&251
done
"""

_START = r"""
[ -e @P@/pid ] && bash @P@/quiet @SINCE@ >/dev/null 2>&1
rm -f @P@/in @P@/done @P@/pid @P@/cmd @P@/out @P@/end @P@/gone
mkfifo @P@/in @P@/done || exit 1
exec 9<>@P@/done
directory=@DIRECTORY@; [ -n "$directory" ] || directory=$PWD; [ "$directory" != / ] || directory=@FALLBACK@
apart=; command -v setsid >/dev/null && apart=setsid
$apart bash -c 'bash --norc --noprofile -c "$1" bash "$2" "$3"; word="gone $? /"
  builtin printf "%s\n" "$word" >@P@/gone; builtin printf "%s\n" "$word" 1<>@P@/done' \
  t1 @LOOP@ "$directory" @FALLBACK@ </dev/null >/dev/null 2>&1 9<&- &
IFS=' ' read -r -t @BOUND@ word status directory <&9 && [ "$word" = ready ] || exit 1
printf '\nT1:@W@ ready 0 0 %s\n\nT1:@W@ end\n' "$directory"
"""

_SUBMIT = r"""
alive || { printf '\nT1:@W@ lost 0 0 /\n\nT1:@W@ end\n'; exit 0; }
sleep 0.011; (IFS= read -r -d '' line </proc/$BASHPID/stat; set -- ${line##*) }; echo "${20}" >@P@/since)
@GIVE@
printf '%s\n' @W@ 1<>@P@/in
"""

_ALIVE = r"""
alive() {
  pid=; IFS= read -r pid <@P@/pid; line=; IFS= read -r -d '' line <"/proc/${pid:-none}/stat"
  case "${line##*) }" in ''|[ZX]*) return 1 ;; esac
} 2>/dev/null
"""

_COLLECT = r"""
now() { n=${EPOCHREALTIME//[.,]/}; [ -n "$n" ] || n=$((SECONDS * 1000000)); }
size() { total=0; [ -s @P@/out ] && total=$(wc -c <@P@/out); }
finish() {
  size; printf '\nT1:@W@ %s %s %s %s\n' "$1" "$2" "${total:-0}" "$3"
  if [ "$total" -gt @MOST@ ]; then { head -c @HEAD@ @P@/out; tail -c @TAIL@ @P@/out; } | base64
  elif [ "$total" -gt 0 ]; then base64 <@P@/out; fi
  printf '\nT1:@W@ end\n'; : >@P@/out; exit 0
}
exec 9<>@P@/done 2>/dev/null
echo $$ >@P@/client
now; until=$((n + @BOUND_US@)); ending=
while :; do
  if ! alive; then
    # The word may have gone to a call whose answer was lost: then it stands in the file.
    while ! { IFS=' ' read -r word status directory <@P@/gone; } 2>/dev/null; do
      IFS=' ' read -r -t 5 word status directory <&9 && [ "$word" != gone ] || break
    done
    [ "$word" = gone ] || status=-1
    finish "${ending:-gone}" "$status" /
  fi
  now; left=$((until - n))
  if [ -z "$ending" ]; then
    size; [ "$total" -gt @FLOOD@ ] && ending=flood
    [ $left -le 0 ] && ending=time
    if [ -n "$ending" ]; then
      IFS= read -r since <@P@/since; bash @P@/quiet "$since" "$pid" >/dev/null 2>&1
      now; until=$((n + @BACK_US@)); left=@BACK_US@
    fi
  elif [ $left -le 0 ]; then
    finish "$ending" -2 /
  fi
  [ $left -lt 500000 ] || left=500000
  printf -v left %06d $left
  if IFS=' ' read -r -t "0.$left" word status directory <&9; then
    [ "$word" = @W@ ] && finish "${ending:-status}" "$status" "$directory"
    [ "$word" = gone ] && finish "${ending:-gone}" "$status" /
  fi
  # Another call, one that was cut, may have taken the word.
  IFS=' ' read -r word status directory <@P@/end || word=
  [ "$word" = @W@ ] && finish "${ending:-status}" "$status" "$directory"
done
"""

_READ = r"""
[ -f @PATH@ ] || { printf '\nT1:@W@ none 0 0 /\n\nT1:@W@ end\n'; exit 0; }
total=$(wc -c <@PATH@) || exit 1
printf '\nT1:@W@ file 0 %s /\n' "$total"
[ "$total" -le @MOST@ ] && base64 <@PATH@
printf '\nT1:@W@ end\n'
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """What a call said."""

    ending: str
    """Of a command: status, time, flood, gone (the shell ended) or lost (there was none); else what the script says."""
    status: int
    """-1: nobody knows. -2: the command could not be ended, and so neither could be spoken to the shell."""
    total: int
    """Bytes of output in the machine; `output` has head and tail of them."""
    directory: str
    output: bytes

    @property
    def shell_lives(self) -> bool:
        """Whether the shell takes another command."""
        return self.ending not in ("gone", "lost") and self.status != -2


def parse(printed: str, word: str) -> Frame | None:
    """The frame in what a call printed; None where there is no whole one. Some providers call through a terminal."""
    printed = printed.replace("\r", "")
    pattern = rf"^T1:{word} (\w+) (-?\d+) (\d+) ([^\n]*)\n(.*?)^T1:{word} end$"
    found = re.search(pattern, printed, re.MULTILINE | re.DOTALL)
    if found is None:
        return None
    try:
        output = base64.b64decode("".join(found[5].split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return Frame(found[1], int(found[2]), int(found[3]), found[4], output)


def framed(word: str, script: str) -> str:
    """A script whose output and status become a frame with the ending `ran`."""
    return (
        f"_t1=$( {{ {script}\n}} | base64; exit ${{PIPESTATUS[0]}} ); "
        f'printf \'\\nT1:{word} ran %s 0 /\\n%s\\n\\nT1:{word} end\\n\' "$?" "$_t1"'
    )


def prepare(workdir: str | None) -> str:
    """To be run once, as root: directories for logs and for the shell.

    Prints when its own process started, on which kernel, in which pid namespace.
    """
    wanted = f"mkdir -p {shlex.quote(workdir)}; " if workdir else ""
    return (
        f"mkdir -p /logs/agent /logs/verifier {PLACE} && chmod 777 /logs /logs/agent /logs/verifier && "
        f"chmod 1777 {PLACE} || exit 1; "
        f"{wanted}printf %s {shlex.quote(_QUIET)} >{PLACE}/quiet || exit 1; "
        "IFS= read -r -d '' line </proc/$$/stat; set -- ${line##*) }; "
        f'echo "exec bash {PLACE}/quiet ${{20}} \\"\\$1\\" \\$(cat {PLACE}/client)" >{PLACE}/rest; '
        "{ kernel=$(cat /proc/sys/kernel/random/boot_id) || kernel=-; "
        'space=$(readlink /proc/self/ns/pid) || space=-; } 2>/dev/null; echo "${20} $kernel $space"'
    )


def start(word: str, *, since: int, directory: str, timeout_s: float) -> str:
    """Start the shell; of one before it, everything that started at `since` (ticks) or later is killed first."""
    return _fill(
        _START,
        LOOP=shlex.quote(_fill(_LOOP)),
        W=word,
        SINCE=str(since),
        DIRECTORY=shlex.quote(directory),
        FALLBACK=shlex.quote(DEFAULT_WORKDIR),
        BOUND=f"{timeout_s:g}",
    )


def submit(word: str, command: str | None, *, timeout_s: float, max_bytes: int) -> str:
    """Hand a command over and wait for its end. None: it lies in `big(word)` already."""
    kept = f"{PLACE}/cmd"
    give = f"cat {big(word)} >{kept}" if command is None else f"printf %s {shlex.quote(command)} >{kept}"
    return _fill(_ALIVE + _SUBMIT, W=word, GIVE=give) + collect(word, timeout_s=timeout_s, max_bytes=max_bytes)


def collect(word: str, *, timeout_s: float, max_bytes: int) -> str:
    """Wait for the end of a command that was handed over."""
    return _fill(
        _ALIVE + _COLLECT,
        W=word,
        MOST=str(max_bytes),
        HEAD=str(max_bytes // 2),
        TAIL=str(max_bytes - max_bytes // 2),
        FLOOD=str(FLOOD_BYTES),
        BOUND_US=str(int(timeout_s * 1e6)),
        BACK_US=str(int(2 * COME_BACK_S * 1e6)),
    )


def big(word: str) -> str:
    """Where a long command is put before `submit`."""
    return f"{PLACE}/big-{word}"


def read(word: str, path: str, max_bytes: int) -> str:
    """Print a regular file in a frame: `file` with its size, and its bytes if it is not too large; `none` else."""
    return _fill(_READ, W=word, PATH=shlex.quote(path), MOST=str(max_bytes))


def quiet(word: str, since: int) -> str:
    """As root: end the shell, then kill everything that started at `since` (ticks) or later: `pid words` in a frame.

    Its status is 1 if something cannot be killed. Nothing of this lies where an agent could have changed it.
    """
    return (
        f"{{ {_fill(_END)}\n}} 2>/dev/null; rm -f {PLACE}/pid; killed=$(bash -c {shlex.quote(_QUIET)} quiet {since}); "
        f"printf '\\nT1:{word} ran %s 0 /\\n' $?; printf %s \"$killed\" | base64; printf '\\nT1:{word} end\\n'"
    )


def _fill(template: str, **values: str) -> str:
    """Put the values in, and the shell's place."""
    return re.sub(r"@([A-Z_]+)@", lambda found: {"P": PLACE, **values}[found[1]], template)
