#!/usr/bin/env python3
"""An operator who errs, by seed, against the real daemon on files.

He fails, replaces, re-adds, pulls and returns drives, moves names about, unloads, imports, destroys and brings back,
pauses and hurries jobs, adds and takes away spares, stops and kills the daemon, and mistypes; a client writes and reads
in between. After every command that was accepted:

- the redundancy of the array is not lower than before, unless the command named that loss;
- there is one array of that identity, or none while it is stopped;
- whatever was acknowledged is read back, as long as no more members are out than the level covers.

He never causes a loss that the level does not cover. The seed repeats his choices, not the timing.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

import _nbd

PATIENCE = 90
DRIVE_BYTES = 64 << 20
LEVELS = {"1": (3, 2), "5": (4, 1), "6": (5, 2), "10": (4, 1), "7.3": (6, 3)}
EXPORT = "data"


class Violation(Exception):
    """A promise was broken."""


class Operator:
    def __init__(self, work, seed):
        self.rng = random.Random(seed)
        self.work = work
        self.socket = os.path.join(work, "s.sock")
        self.nbd = os.path.join(work, "n.sock")
        self.log = open(os.path.join(work, "straked.log"), "a")
        self.environment = dict(os.environ, STRAKE_SOCKET=self.socket, NO_COLOR="1")
        self.model = _nbd.Model()
        self.level = self.rng.choice(sorted(LEVELS))
        self.count, self.parity = LEVELS[self.level]
        self.name = "tank"
        self.uuid = None
        self.serial = 0
        self.free = []  # drives that hold nothing, or nothing that matters
        self.drawer = {}  # path -> where it lies now
        self.history = []
        self.tally = {}
        self.daemon = None

    # The machine.

    def new_drive(self):
        self.serial += 1
        path = os.path.join(self.work, f"d{self.serial}")
        with open(path, "wb") as file:
            file.truncate(DRIVE_BYTES)
        return path

    def start(self):
        command = ["straked", "--state-dir", os.path.join(self.work, "state"), "--socket", self.socket]
        self.daemon = subprocess.Popen(command + ["--assemble-timeout", "3"], stdout=self.log, stderr=self.log)
        self.wait("the daemon answers", self.answers)

    def answers(self):
        if self.daemon.poll() is not None:
            raise Violation(f"straked ended with {self.daemon.returncode} while starting")
        return self.run("status")[0] != 4

    def run(self, *arguments):
        """Exit code, standard output, standard error."""
        command = ["strake", *arguments]
        ran = subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
        self.history.append(f"{ran.returncode} {' '.join(command)}")
        if ran.returncode not in (0, 1, 2, 3, 4) or "panicked" in ran.stderr:
            raise Violation(f"exit code {ran.returncode}: {ran.stderr}")
        if ran.returncode >= 3 and not ran.stderr.strip():
            raise Violation(f"refused without a word: {command}")
        return ran.returncode, ran.stdout, ran.stderr

    def wait(self, what, holds):
        end = time.monotonic() + PATIENCE
        while True:
            value = holds()
            if value:
                return value
            if time.monotonic() > end:
                raise Violation(f"not within {PATIENCE} s: {what}")
            time.sleep(0.05)

    # What is there.

    def look(self):
        """The array as it says it is, or None."""
        code, out, _ = self.run("array", "list", "--output", "json")
        if code > 2:
            raise Violation("array list does not answer")
        arrays = [a for a in json.loads(out)["arrays"] if self.uuid in (None, a["uuid"])]
        if len(arrays) > 1:
            raise Violation(f"{len(arrays)} arrays of one identity")
        return arrays[0] if arrays else None

    def online(self):
        array = self.look()
        return array if array and "online" in array["states"] else None

    def client(self):
        def connect():
            try:
                return _nbd.Client(self.nbd, EXPORT)
            except (OSError, _nbd.Refused):
                return None

        return self.wait("the export takes clients", connect)

    def out(self, array):
        return [m["position"] for m in array["members"] if m["state"] in ("faulty", "missing")]

    # Checks.

    def verify(self):
        client = self.client()
        for first, blocks in sorted(self.model.windows):
            data = client.read(first * _nbd.BLOCK, blocks * _nbd.BLOCK)
            for n in range(blocks):
                self.model.settle(first + n, data[n * _nbd.BLOCK : (n + 1) * _nbd.BLOCK])
        client.close()

    def guarded(self, allowed, *arguments):
        """A command that may not lower redundancy, except by `allowed`."""
        before = self.online()
        code, out, err = self.run(*arguments)
        after = self.online()
        if before and after and "--dry-run" not in arguments:
            lost = before["redundancy_left"] - after["redundancy_left"]
            if lost > (allowed if code == 0 else 0):
                raise Violation(f"redundancy fell by {lost}: {arguments}: {out}{err}")
        return code, err

    # What he does. Each returns False when there was nothing to do.

    def do_write(self):
        client = self.client()
        for _ in range(self.rng.randrange(1, 6)):
            count = self.rng.choice((1, 2, 7, 32))
            first = self.rng.randrange(0, 8192 - count) // 32 * 32
            self.model.windows.add((first, 32))
            self.model.sequence += 1
            client.write(first * _nbd.BLOCK, _nbd.pattern(self.model.sequence, first, count))
            for block in range(first, first + count):
                self.model.acknowledged[block] = self.model.sequence
        client.close()

    def do_verify(self):
        self.verify()

    def do_fail(self):
        array = self.online()
        member = self.rng.randrange(self.count)
        state = array["members"][member]["state"]
        told = self.rng.random() < 0.7
        arguments = ["array", "fail", self.name, "--member", str(member)] + (["--accept", "redundancy"] if told else [])
        code, err = self.guarded(self.parity, *arguments)
        if code == 0 and state == "in_sync" and not told:
            raise Violation("a member in sync was failed although nobody accepted that")
        # Of level 10 the worst case may be used up while other pairs are whole.
        # What was being rebuilt may have ended before the command came.
        settled = not array["progress"] and self.level != "10"
        if code == 0 and state == "in_sync" and array["redundancy_left"] == 0 and settled:
            raise Violation("a member was failed that the data depends on")

    def do_replace(self):
        array = self.online()
        out = self.out(array)
        member = self.rng.choice(out) if out and self.rng.random() < 0.8 else self.rng.randrange(self.count)
        drive = self.free.pop() if self.free and self.rng.random() < 0.7 else self.new_drive()
        code, _ = self.guarded(0, "array", "replace", self.name, "--member", str(member), "--with", drive)
        if code:
            self.free.append(drive)

    def do_add(self):
        drive = self.new_drive()
        if self.guarded(0, "array", "add", self.name, "--drive", drive)[0]:
            self.free.append(drive)

    def do_readd(self):
        self.guarded(0, "array", "readd", self.name, "--member", str(self.rng.randrange(self.count)))

    def do_pull(self):
        array = self.online()
        rebuilding = [m for m in array["members"] if m["state"] == "rebuilding"]
        here = [m["path"] for m in array["members"] if m["state"] == "in_sync" and os.path.exists(m["path"])]
        if array["redundancy_left"] < 1 or not here or rebuilding or array["progress"]:
            return False
        path = self.rng.choice(here)
        self.drawer[path] = path + ".drawer"
        os.rename(path, self.drawer[path])
        self.wait("a pulled drive is noticed", lambda: not any(
            m["path"] == path and m["state"] == "in_sync" for m in (self.online() or array)["members"]
        ))

    def do_return(self):
        if not self.drawer:
            return False
        path = self.rng.choice(sorted(self.drawer))
        if os.path.exists(path):
            del self.drawer[path]
            return False
        os.rename(self.drawer.pop(path), path)

    def do_spare(self):
        if self.rng.random() < 0.5:
            drive = self.new_drive()
            self.guarded(0, "spare", "add", drive, *(["--array", self.name] if self.rng.random() < 0.5 else []))
        else:
            _, out, _ = self.run("spare", "list", "--output", "json")
            spares = json.loads(out)["spares"]
            if not spares:
                return False
            self.guarded(0, "spare", "remove", self.rng.choice(spares)["path"])

    def do_job(self):
        _, out, _ = self.run("job", "list", "--output", "json")
        jobs = json.loads(out)["jobs"]
        if not jobs:
            return False
        job = self.rng.choice(jobs)["id"]
        verb = self.rng.choice(("pause", "resume", "set", "cancel"))
        more = {"set": ["--priority", str(self.rng.randrange(101))], "cancel": ["--yes"]}.get(verb, [])
        self.guarded(0, "job", verb, job, *more)
        # A job that stays paused would never end.
        self.run("job", "resume", job)

    def do_rename(self):
        name = f"tank{self.rng.randrange(1000)}"
        if self.guarded(0, "array", "rename", self.name, name)[0] == 0:
            self.name = name

    def do_set(self):
        self.guarded(0, "array", "set", self.name, "--rebuild-priority", str(self.rng.randrange(101)))

    def do_dry_run(self):
        before = self.online()
        for arguments in (
            ("array", "destroy", self.name, "--dry-run"),
            ("array", "unload", self.name, "--dry-run"),
            ("array", "fail", self.name, "--member", "0", "--dry-run"),
            ("array", "rebuild", self.name, "--dry-run"),
        ):
            self.guarded(0, *arguments)
        after = self.online()

        def faulty(array):
            return {at for at, member in enumerate(array["members"]) if member["state"] == "faulty"}

        # What the array does by itself meanwhile, as when a spare takes a place, only makes them fewer.
        if after is None or not faulty(after) <= faulty(before):
            raise Violation("a dry run changed something")

    def do_mistype(self):
        wrong = self.rng.choice((
            ("array", "destroy", self.name),
            ("array", "destroy", "no-such-array", "--yes"),
            ("array", "fail", self.name, "--member", "99", "--accept", "redundancy"),
            ("array", "replace", self.name, "--member", "0", "--with", "/no/such/drive"),
            ("array", "create", "other", "--level", "6", "--drives", ",".join(self.members())),
            ("array", "create", self.name, "--level", "0", "--drives", self.new_drive()),
            ("drive", "clean", self.settled(), "--yes"),
            ("spare", "add", self.settled()),
            ("array", "undelete", self.name),
        ))
        code, _ = self.guarded(0, *wrong)
        if code < 3:
            raise Violation(f"not refused: {wrong}")

    def members(self):
        return [m["path"] for m in self.online()["members"] if m["path"]] or ["/no/such/drive"]

    def settled(self):
        """A member that is in sync and not being copied: one that is may be free when the command arrives."""
        members = self.online()["members"]
        paths = [m["path"] for m in members if m["state"] == "in_sync" and not m["replacement"]]
        return (paths or ["/no/such/drive"])[0]

    def drives(self):
        """Those of the array that are there: members, and drives that members are being copied to, which may have taken
        their places by the time they are used."""
        members = self.online()["members"]
        paths = [m["path"] for m in members] + [m["replacement"] for m in members]
        return [path for path in paths if os.path.exists(path)]

    def do_unload(self):
        drives = self.drives()
        clean = self.online()["redundancy_left"] == self.parity
        if self.run("array", "unload", self.name, "--force", "--yes")[0]:
            return False
        if self.look() is not None:
            raise Violation("an unloaded array is still listed")
        self.rng.shuffle(drives)
        if clean and self.rng.random() < 0.4:
            # Half of them first, as an operator would who forgot some.
            code, _, _ = self.run("array", "import", "--drives", ",".join(drives[: self.count // 2]))
            if code < 3 and self.online():
                raise Violation("an array started without members that were last seen in sync")
        self.bring_back(["array", "import", "--drives", ",".join(drives + self.outside(drives))])

    def do_destroy(self):
        drives = self.drives()
        if self.run("array", "destroy", self.name, "--force", "--yes")[0]:
            return False
        self.bring_back(["array", "undelete", self.uuid, "--drives", ",".join(drives)])

    def outside(self, drives):
        """Retired drives of the same array, now and then: they must not be taken for members."""
        return [d for d in self.free if os.path.exists(d) and d not in drives] if self.rng.random() < 0.3 else []

    def bring_back(self, command):
        code, _, first = self.run(*command)
        err = ""
        if code >= 3:
            # Missing members are waited for until somebody says that they will not come.
            code, _, err = self.run("array", "import", self.uuid, "--drives", command[-1], "--degraded", "--accept-loss")
        if code >= 3 or not self.online():
            raise Violation(f"the array does not come back: {first}{err}")
        self.offer()

    def do_stop(self):
        self.daemon.send_signal(signal.SIGTERM)
        if self.daemon.wait(PATIENCE):
            raise Violation(f"straked ended with {self.daemon.returncode} after SIGTERM")
        self.restart()

    def do_kill(self):
        self.daemon.kill()
        self.daemon.wait(PATIENCE)
        self.restart()

    def restart(self):
        self.start()
        end = time.monotonic() + 15
        while not self.online() and time.monotonic() < end:
            time.sleep(0.05)
        if not self.online():
            # Degraded when it was killed: the regions are named, nothing was being written, he accepts.
            code, _, err = self.run("array", "import", self.uuid, "--degraded", "--accept-loss")
            if code >= 3:
                raise Violation(f"the array does not come back after a restart: {err}")
        self.offer()

    def offer(self):
        """The export is there, by itself or because he makes it."""
        _, out, _ = self.run("export", "list", "--output", "json")
        if not any(e["name"] == EXPORT for e in json.loads(out)["exports"]):
            command = ["export", "create", self.name, "--name", EXPORT, "--via", "nbd", "--listen", f"unix:{self.nbd}"]
            code, _, err = self.run(*command)
            if code:
                raise Violation(f"the array cannot be exported again: {err}")

    def do_settle(self):
        """He lets it finish what it is doing."""
        self.run("array", "rebuild", self.name)
        self.wait("background work ends", lambda: (a := self.online()) and not a["progress"])
        self.verify()

    WEIGHTS = {
        "write": 12, "verify": 4, "fail": 5, "replace": 6, "add": 2, "readd": 4, "pull": 5, "return": 6, "spare": 3,
        "job": 3, "rename": 1, "set": 1, "dry_run": 2, "mistype": 4, "unload": 2, "destroy": 1, "stop": 1, "kill": 2,
        "settle": 3,
    }

    def live(self, steps):
        drives = [self.new_drive() for _ in range(self.count)]
        self.start()
        code, _, err = self.run("array", "create", self.name, "--level", self.level, "--drives", ",".join(drives))
        if code:
            raise Violation(f"the array cannot be created: {err}")
        self.uuid = self.look()["uuid"]
        self.offer()
        verbs, weights = zip(*sorted(self.WEIGHTS.items()))
        for _ in range(steps):
            verb = self.rng.choices(verbs, weights)[0]
            self.history.append(f"-- {verb}")
            if not self.online():
                raise Violation(f"the array is not online before {verb}: {self.look()}")
            if getattr(self, f"do_{verb}")() is not False:
                self.tally[verb] = self.tally.get(verb, 0) + 1
        self.finish()

    def finish(self):
        """Everything comes back, everything is rebuilt, everything is read."""
        for path in sorted(self.drawer):
            if not os.path.exists(path):
                os.rename(self.drawer[path], path)
        for member in self.out(self.online()):
            self.guarded(0, "array", "replace", self.name, "--member", str(member), "--with", self.new_drive())
        self.do_settle()
        array = self.online()
        if self.out(array) or array["redundancy_left"] != self.parity:
            raise Violation(f"not whole at the end: {array['states']} {[m['state'] for m in array['members']]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    operator = Operator(args.work, args.seed)
    failure = None
    try:
        operator.live(args.steps)
    except (Violation, SystemExit, OSError, subprocess.SubprocessError, _nbd.Refused) as error:
        failure = f"{type(error).__name__}: {error}"
    if operator.daemon is not None and operator.daemon.poll() is None:
        operator.daemon.kill()
        operator.daemon.wait()
    if failure:
        print("\n".join(operator.history[-40:]), file=sys.stderr)
        sys.exit(f"seed {args.seed} (level {operator.level}): {failure}")
    done = " ".join(f"{verb}:{count}" for verb, count in sorted(operator.tally.items()))
    print(f"seed {args.seed}, level {operator.level}: {done}")


if __name__ == "__main__":
    main()
