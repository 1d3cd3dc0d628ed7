#!/usr/bin/env python3
"""The examples in strake's help, for 70-examples.sh.

    _examples.py list            prints "COMMAND<TAB>EXAMPLE" for every example, by walking --help
    _examples.py run COMMAND...  runs it as a person at a terminal would: types what a confirmation asks for, and
                                 ends with Ctrl-C what would go on for ever, once it has drawn or is quiet
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys

ASKED = re.compile(r"\nType (.+) to continue: $")
# A command that has said nothing for so long, and that never ends by itself, is told to.
QUIET_S = 0.5


def section(text, heading):
    """The indented lines after `heading`."""
    lines = iter(text.splitlines())
    for line in lines:
        if line == heading:
            break
    for line in lines:
        if line and not line.startswith(" "):
            return
        if line.strip():
            yield line


def walk(words):
    text = subprocess.run([*words, "--help"], check=True, capture_output=True, text=True).stdout
    for line in section(text, "Examples:"):
        yield " ".join(words), line.strip()
    for line in section(text, "Commands:"):
        if re.match(r"  \S", line):
            yield from walk([*words, line.split()[0]])


def listed():
    known = set()
    for command, example in walk(["strake"]):
        if example not in known:
            known.add(example)
            print(f"{command}\t{example}")


def catches(pid, number):
    """Whether a child runs another program, which handles a signal (proc_pid_status(5), SigCgt)."""
    if os.readlink(f"/proc/{pid}/exe") == os.readlink("/proc/self/exe"):
        return False
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        caught = next(line.split()[1] for line in status if line.startswith("SigCgt:"))
    return int(caught, 16) >> (number - 1) & 1 == 1


def typed(command):
    endless = not {"--watch", "--follow", "follow"}.isdisjoint(command)
    child, screen = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.execvp(command[0], command)
    printed, answered, told = "", 0, False
    while True:
        ready, _, _ = select.select([screen], [], [], QUIET_S)
        if not ready:
            # A command that still starts would be killed.
            if endless and not told and catches(child, signal.SIGINT):
                os.kill(child, signal.SIGINT)
                told = True
            continue
        try:
            data = os.read(screen, 65536)
        except OSError:
            break
        if not data:
            break
        printed += data.decode(errors="replace").replace("\r\n", "\n")
        question = ASKED.search(printed[answered:])
        if question:
            answered = len(printed)
            os.write(screen, question.group(1).encode() + b"\n")
    _, status = os.waitpid(child, 0)
    sys.stdout.write(printed)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    if sys.argv[1] == "list":
        listed()
    else:
        code = typed(sys.argv[2:])
        sys.exit(code if code >= 0 else 128 - code)
