#!/usr/bin/env python3
"""Walks through one page of the operator's guide: runs its commands and holds what it prints against the page.

A page is Markdown. In a block marked `console`, a line that begins with `$ ` is a command, and the lines below it are
what it prints; `...` in such a line stands for anything, and a line of `...` alone for any number of lines. What
happens between the commands, without anybody typing it, stands in comments that readers do not see:

    <!-- guide: VERB ARGUMENTS -->

The verbs are the functions below that begin with `do_`. Drives are files with the names of NVMe drives; the page's
`nvme3n1` becomes the path of such a file before a command runs, and paths of such files become `/dev/nvme3n1` in what
it printed. Machines are daemons on this one: the page's addresses `192.0.2.N` become ones of loopback, and its port `:4420`
one that is free. At its end a page must read back everything that was ever written, unless it says `no data`.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

PATIENCE = 60
DRIVE = re.compile(r"(?<![\w/])nvme(\d+)n1\b")
SHOWN, REAL = "192.0.2.", "127.0.2."


class Wrong(Exception):
    """The page and the program do not agree."""


class Machine:
    """A host: its daemon, with a state directory and a socket of its own."""

    def __init__(self, name, work):
        self.name = name
        self.home = os.path.join(work, name)
        os.makedirs(self.home, exist_ok=True)
        self.socket = os.path.join(self.home, "s.sock")
        self.log = os.path.join(self.home, "straked.log")
        self.process = None

    def environment(self):
        return dict(os.environ, STRAKE_SOCKET=self.socket, NO_COLOR="1", COLUMNS="80", TZ="UTC", LC_ALL="C.UTF-8")

    def start(self, *arguments):
        command = ["straked", "--state-dir", os.path.join(self.home, "state"), "--socket", self.socket]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(command + list(arguments), stdout=log, stderr=log)
        wait("straked answers", self.answers)

    def answers(self):
        if self.process.poll() is not None:
            raise Wrong(f"straked ended with {self.process.returncode} while it was starting; see {self.log}")
        # 4 is "could not tell": nobody answered yet.
        return self.run(["strake", "status"]).returncode != 4

    def run(self, command):
        return subprocess.run(
            command, env=self.environment(), cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE * 3
        )

    def end(self, how):
        if self.process is None or self.process.poll() is not None:
            return None
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)


def free_port():
    """One that nobody listens on at any address of loopback."""
    with socket.create_server((REAL + "1", 0)) as door:
        return door.getsockname()[1]


def wait(what, holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise Wrong(f"not within {PATIENCE} s: {what}")
        time.sleep(0.05)


class Walk:
    """One page, from its first command to its last."""

    def __init__(self, page, work):
        self.page, self.work = page, work
        self.dev = os.path.join(work, "dev")
        self.drawer = os.path.join(work, "drawer")
        os.makedirs(self.dev)
        os.makedirs(self.drawer)
        self.machines = {}
        self.host = self.machine("host")
        self.exits = 0
        self.commands = 0
        self.refusal = ""
        self.written = []
        self.verified = True
        self.way = None
        self.port = free_port()
        self.client = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_nbd.py")

    def machine(self, name):
        if name not in self.machines:
            self.machines[name] = Machine(name, self.work)
        return self.machines[name]

    # What happens between the commands.

    def do_drives(self, count, size="128MiB"):
        """COUNT [SIZE]: so many empty drives, nvme0n1 and on."""
        for n in range(int(count)):
            self.do_blank(f"nvme{n}n1", size)

    def do_blank(self, drive, size="128MiB"):
        """DRIVE [SIZE]: an empty drive in that slot."""
        subprocess.run(["truncate", "-s", size, self.path(drive)], check=True)

    def do_start(self, *arguments):
        """[ARGUMENT...]: the daemon starts."""
        self.host.start(*arguments)

    def do_setup(self, *command):
        """COMMAND...: a command that readers need not see."""
        ran = self.host.run(["bash", "-c", DRIVE.sub(self.substitute, " ".join(command))])
        if ran.returncode:
            raise Wrong(f"setup {' '.join(command)}: exit code {ran.returncode}: {ran.stdout}{ran.stderr}")

    def do_export(self, array, name=None):
        """ARRAY [NAME]: is exported, for the client of this page; NAME is the export, as `write` and `verify` name it."""
        named = f" --name {name}" if name else ""
        self.do_setup(f"strake export create {array} --via nbd --listen unix:{self.nbd()}{named}")

    def do_write(self, array, windows="0:512,4096:512"):
        """ARRAY [FIRST:COUNT,...]: a client writes these blocks of 4 KiB."""
        self.nbd_client("fill", array, "--windows", windows)
        if array not in self.written:
            self.written.append(array)
        self.verified = False

    def do_verify(self, array, *accepted):
        """ARRAY [accepted]: a client reads back what was ever written, but for ranges whose loss was accepted."""
        self.nbd_client("verify", array, *(self.forgive() if accepted == ("accepted",) else ()))
        self.verified = True

    def do_crash(self, array):
        """ARRAY: the machine dies while a client writes."""
        pid = str(self.host.process.pid)
        self.nbd_client("crash", array, "--windows", "0:2048", "--kill", pid)
        if array not in self.written:
            self.written.append(array)
        self.host.process.wait(PATIENCE)
        self.verified = False

    def do_kill(self):
        """the machine dies."""
        self.host.end(signal.SIGKILL)

    def do_stop(self):
        """the daemon stops in order."""
        if self.host.end(signal.SIGTERM):
            raise Wrong(f"straked ended with {self.host.process.returncode} after SIGTERM")

    def do_pull(self, *drives):
        """DRIVE...: somebody pulls them."""
        for drive in drives:
            os.rename(self.path(drive), os.path.join(self.drawer, drive))

    def do_plug(self, *drives):
        """DRIVE...: somebody puts them back."""
        for drive in drives:
            os.rename(os.path.join(self.drawer, drive), self.path(drive))

    def do_break(self, *drives):
        """DRIVE...: they fail for good; everything on them is gone."""
        for drive in drives:
            os.truncate(self.path(drive), 0)

    def do_spoil(self, drive, offset, count):
        """DRIVE OFFSET BYTES: bytes become others, and the drive says nothing."""
        with open(self.path(drive), "r+b") as medium:
            medium.seek(int(offset))
            old = medium.read(int(count))
            medium.seek(int(offset))
            medium.write(bytes(byte ^ 0x5A for byte in old))

    def do_machine(self, name):
        """NAME: what follows is typed on another machine, which sees the same drives."""
        self.host = self.machine(name)

    def do_carry(self, file, name):
        """FILE NAME: somebody carries a file to that machine."""
        shutil.copy(os.path.join(self.host.home, file), os.path.join(self.machine(name).home, file))

    def do_way(self, place, target):
        """ADDRESS:PORT ADDRESS:PORT: a second network, over which the machine at the other address is reached."""
        self.do_cut()
        portal = os.path.join(os.path.dirname(self.client), "_portal.py")
        told = os.path.join(self.work, "way")
        self.way = subprocess.Popen([sys.executable, portal, self.real(place), self.real(target), told])
        wait("the way is open", lambda: os.path.exists(told))

    def do_cut(self):
        """that network is gone."""
        if self.way:
            self.way.kill()
            self.way.wait()
            self.way = None
            os.remove(os.path.join(self.work, "way"))

    def do_event(self, kind):
        """KIND: until an event of this kind has been told."""

        def holds():
            ran = self.host.run(["strake", "event", "list", "--kind", kind, "--output", "json"])
            return ran.returncode == 0 and bool(json.loads(ran.stdout)["events"])

        wait(f"an event {kind}", holds)

    def do_paths(self, drive, *wanted):
        """DRIVE STATE...: until the paths of a drive of another machine are in these states."""

        def holds():
            ran = self.host.run(["strake", "drive", "show", self.real(drive), "--output", "json"])
            return ran.returncode == 0 and [path["state"] for path in json.loads(ran.stdout)["paths"]] == list(wanted)

        wait(f"the paths of {drive} are {' '.join(wanted)}", holds)

    def do_state(self, array, *wanted):
        """ARRAY STATE...: until the array is in all of these states (none with a ! before it)."""

        def holds():
            ran = self.host.run(["strake", "array", "show", array, "--output", "json"])
            if ran.returncode > 2:
                return False
            states = json.loads(ran.stdout)["states"]
            return all((word[1:] not in states) if word[0] == "!" else (word in states) for word in wanted)

        wait(f"array {array} is {' '.join(wanted)}", holds)

    def do_exits(self, code):
        """CODE: of the last command of the next block."""
        self.exits = int(code)

    def do_offered(self, array):
        """ARRAY: until its export takes clients."""

        def holds():
            ran = self.host.run(["strake", "export", "list", "--output", "json"])
            exports = json.loads(ran.stdout)["exports"] if ran.returncode <= 2 else []
            return any(e["array"] == array and e["state"] == "online" for e in exports)

        wait(f"array {array} is offered again", holds)

    # Helpers.

    def forgive(self):
        """The ranges that the last refusal named as possibly damaged, whole regions of whole blocks."""
        named = re.search(r"may be damaged in (\d+) region\(s\) \(byte offset\+length: ([^)]*)\)", self.refusal)
        ranges = re.findall(r"(\d+)\+(\d+) MiB", named[2]) if named else []
        if not named or len(ranges) != int(named[1]):
            raise Wrong(f"no complete list of damaged ranges in the last refusal: {self.refusal}")
        windows = [f"{int(at) // 4096}:{int(length) << 8}" for at, length in ranges]
        return ("--forgive", ",".join(windows))

    def path(self, drive):
        if not DRIVE.fullmatch(drive):
            raise Wrong(f"{drive} is no drive of this guide")
        return os.path.join(self.dev, drive)

    def substitute(self, match):
        return self.path(match[0])

    def real(self, text):
        """What the page's addresses are here."""
        return text.replace(SHOWN, REAL).replace(":4420", f":{self.port}")

    def nbd(self):
        return os.path.join(self.work, "nbd.sock")

    def nbd_client(self, verb, array, *more):
        command = [sys.executable, self.client, verb, "--socket", self.nbd(), "--export", array]
        ran = self.host.run(command + ["--model", os.path.join(self.work, f"model-{array}"), *more])
        if ran.returncode:
            raise Wrong(f"client {verb} {array}: {ran.stdout}{ran.stderr}")

    # The page.

    def command(self, text, exits):
        typed = self.real(DRIVE.sub(self.substitute, text.replace("/dev/nvme", "nvme")))
        ran = self.host.run(["bash", "-c", typed])
        self.commands += 1
        printed = re.sub(re.escape(self.dev) + "/", "/dev/", ran.stdout + ran.stderr).replace(self.work, "/tmp/guide")
        printed = printed.replace(f":{self.port}", ":4420").replace(REAL, SHOWN)
        if exits:
            self.refusal = squeezed(printed)  # folded to the width of the terminal
        if ran.returncode != exits:
            raise Wrong(f"exit code {ran.returncode} instead of {exits}: {text}\n{printed}")
        return printed

    def block(self, lines):
        """Runs the commands of one console block."""
        steps = []
        for line in lines:
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif steps and steps[-1][0].endswith("\\"):
                steps[-1] = (steps[-1][0][:-1] + line.strip(), [])
            elif steps:
                steps[-1][1].append(line)
            else:
                raise Wrong(f"a console block begins with a command, not with {line!r}")
        for at, (text, expected) in enumerate(steps):
            printed = self.command(text, self.exits if at + 1 == len(steps) else 0)
            if expected and not matches(expected, printed.splitlines()):
                raise Wrong(f"{text}\n-- the page says\n" + "\n".join(expected) + f"\n-- it printed\n{printed}")
        self.exits = 0

    def walk(self):
        inside, lines = False, []
        with open(self.page) as page:
            for number, line in enumerate(page, 1):
                line = line.rstrip("\n")
                try:
                    if inside and line == "```":
                        self.block(lines)
                        inside, lines = False, []
                    elif inside:
                        lines.append(line)
                    elif line == "```console":
                        inside = True
                    elif line.startswith("<!-- guide: "):
                        self.act(line)
                except (Wrong, OSError, subprocess.SubprocessError) as error:
                    raise Wrong(f"{self.page}:{number}: {error}") from error
        if inside:
            raise Wrong(f"{self.page}: a console block without end")
        if not self.commands:
            raise Wrong(f"{self.page}: no command at all")
        if not self.verified:
            raise Wrong(f"{self.page}: what was written is not read back at the end")

    def act(self, line):
        inner = re.fullmatch(r"<!-- guide: (.*) -->", line)
        if not inner:
            raise Wrong(f"not a directive: {line}")
        verb, *arguments = shlex.split(inner[1])
        method = getattr(self, f"do_{verb}", None)
        if method is None:
            raise Wrong(f"no such directive: {verb}")
        method(*arguments)


def matches(expected, printed):
    """Whether what was printed is what the page shows."""
    if not expected:
        return not any(line.strip() for line in printed)
    if expected[0].strip() == "...":
        return any(matches(expected[1:], printed[at:]) for at in range(len(printed) + 1)) or len(expected) == 1
    if not printed:
        return not any(line.strip() for line in expected)
    pattern = ".*".join(re.escape(part) for part in squeezed(expected[0]).split("..."))
    return re.fullmatch(pattern, squeezed(printed[0])) is not None and matches(expected[1:], printed[1:])


def squeezed(line):
    """Columns move with the length of paths: any run of blanks counts as one."""
    return re.sub(r"\s+", " ", line).strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page")
    parser.add_argument("--work", required=True, help="an empty folder")
    args = parser.parse_args()
    walk = Walk(args.page, args.work)
    failure = None
    try:
        walk.walk()
    except Wrong as error:
        failure = str(error)
    walk.do_cut()
    for machine in walk.machines.values():
        machine.end(signal.SIGKILL)
    if failure:
        sys.exit(failure)
    print(f"{walk.commands} commands")


if __name__ == "__main__":
    main()
