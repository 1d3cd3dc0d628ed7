#!/usr/bin/env python3
"""kill -9 of straked under fio and SQLite on a file system over its export; runs in the guest of kill9-guest.sh.

Five states of the array in turn: whole, whole while the resynchronization of the last crash may still run, one member
out, two members out, both being rebuilt, the rebuild held where it is until the kill is over. In every other round the kernel keeps its requests until the daemon is back,
and nobody may notice; in the others it gives up, the file system goes down with the daemon, and is mounted again.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import _ledger
import _nbd_kernel
from _tank import Daemon, Violation, drives, output, wait

PATIENCE = 120
DEPTH = 8
STATES = ["whole", "whole", "one out", "two out", "rebuilding"]
WORK, MOUNT, DEVICE = "/tmp/k", "/tmp/k/mnt", "/dev/nbd0"
ACKS, STOP = f"{WORK}/acks", f"{WORK}/stop"
# Where fio keeps what it has written, with the --aux-path and the name of the job below.
STATE = f"{WORK}/local-load-0-verify.state"
FILE, DATABASE = f"{MOUNT}/fio", f"{MOUNT}/ledger"


class Rounds:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rng = random.Random(arguments.seed)
        os.makedirs(MOUNT)
        self.daemon = Daemon(WORK)
        self.device = None
        self.drives = drives("KILL")
        self.members, self.free = self.drives[:6], self.drives[6:]
        self.out = []
        self.acks_at_start = 0
        self.tally = {"kills": 0, "held": 0, "dropped": 0, "lost_acks": 0, "fio_errors": 0, "fio_verified_kib": 0,
                      "fsck": 0, "resynced_mib": 0, "rebuilding": 0}
        self.states = dict.fromkeys(STATES, 0)

    # The array and the file system on it.

    def make(self):
        self.daemon.start()
        output("strake", "array", "create", "tank", "--level", "6", "--drives", ",".join(self.members),
               "--strip", "64KiB", "--block-size", "4096", "--consistency", self.arguments.consistency)
        output("strake", "export", "create", "tank", "--via", "nbd", "--listen", f"unix:{self.daemon.nbd}")
        self.connect(PATIENCE)
        if self.arguments.filesystem == "xfs":
            output("mkfs.xfs", "-q", "-f", DEVICE)
        else:
            output("mkfs.ext4", "-q", "-F", DEVICE)
        self.mount()
        output(*self.fio(), "--output=/dev/null", f"--size={self.arguments.file_mib}m", "--verify_fatal=1")

    def connect(self, patience):
        self.device = _nbd_kernel.Device(0, self.daemon.nbd, "tank", patience)
        wait("the last connection is gone", lambda: not os.path.exists("/sys/block/nbd0/pid"))
        self.device.connect()

    def mount(self):
        output("mount", "-t", self.arguments.filesystem, DEVICE, MOUNT)

    def unmount(self):
        output("umount", MOUNT)

    def fsck(self):
        """Nothing to mend after the file system was mounted and unmounted, which replays its log."""
        check = ["xfs_repair", "-n"] if self.arguments.filesystem == "xfs" else ["e2fsck", "-fn"]
        output(*check, DEVICE)
        self.tally["fsck"] += 1

    # The load.

    def fio(self):
        return ["fio", "--name=load", f"--filename={FILE}", f"--size={self.arguments.file_mib}m", "--rw=randwrite",
                "--bs=4k", "--ioengine=libaio", f"--iodepth={DEPTH}", "--direct=1", "--verify=crc32c", "--minimal", "--thread",
                f"--aux-path={WORK}", f"--randseed={self.rng.randrange(1 << 31)}"]

    def acknowledged(self):
        return _ledger.last_acknowledged(ACKS)

    def load(self, journal):
        if os.path.exists(STOP):
            os.remove(STOP)
        self.acks_at_start = self.acknowledged()
        self.ledger = subprocess.Popen(
            [sys.executable, f"{HERE}/_ledger.py", "write", "--database", DATABASE, "--journal", journal,
             "--acknowledged", ACKS, "--stop", STOP], stderr=subprocess.PIPE, text=True)
        self.command = self.fio()
        self.load_fio = self.start_fio()

    def start_fio(self):
        """fio from its beginning, over zeroes: what of its writes gets lost is then no block that it could take for one
        of them. (Older blocks of its own pass `verify_only`.)"""
        if os.path.exists(STATE):
            os.remove(STATE)
        with open(FILE, "r+b") as file:
            file.write(bytes(self.arguments.file_mib << 20))
            file.flush()
            os.fsync(file.fileno())
        return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def more_acks(self, since, count):
        if self.load_fio.poll() is not None:
            if self.load_fio.returncode:
                raise Violation(f"fio ended with {self.load_fio.returncode}: {self.load_fio.stderr.read()[-1500:]}")
            self.load_fio = self.start_fio()
        if self.ledger.poll() is not None:
            raise Violation(f"the ledger ended: {self.ledger.stderr.read()[-1500:]}")
        return self.acknowledged() >= since + count and self.fio_wrote() > DEPTH * 4096

    def fio_wrote(self):
        """Bytes that fio has sent to the file (proc(5); its jobs are threads of one process)."""
        try:
            lines = open(f"/proc/{self.load_fio.pid}/io").read().splitlines()
        except OSError:
            return 0
        return int(dict(line.split(": ") for line in lines).get("write_bytes", 0))

    # The rounds.

    def prepare(self, state):
        """Takes members out or puts drives in their places, as the state of the round has it."""
        os.sync()
        while state == "one out" and len(self.out) < 1 or state == "two out" and len(self.out) < 2:
            member = self.rng.choice([m for m in range(6) if m not in self.out])
            output("strake", "array", "fail", "tank", "--member", str(member), "--accept", "redundancy", "--yes")
            self.out.append(member)
        if state == "rebuilding":
            for member in self.out:
                drive = self.free.pop(0)
                output("strake", "array", "replace", "tank", "--member", str(member), "--with", drive,
                       "--overwrite", "--yes")
                self.free.append(self.members[member])
                self.members[member] = drive
            self.out = []
            # Over already on a fast machine: then there is nothing to hold.
            subprocess.run(["strake", "job", "pause", "tank/rebuild"], capture_output=True)

    def round(self, number):
        state, held = STATES[(number - 1) % len(STATES)], number % 2 == 1
        if not held:
            self.unmount()
            self.device.disconnect()
            self.connect(0)
            self.mount()
        self.prepare(state)
        self.load("WAL" if number % 4 < 2 else "DELETE")
        count = self.rng.randint(1, self.arguments.commits)
        wait("the ledger moves", lambda: self.more_acks(self.acks_at_start, count))
        # The moment itself has nothing to wait for: it is drawn.
        time.sleep(self.rng.random() * 0.3)
        before = [m["state"] for m in self.daemon.array()["members"]] if state == "rebuilding" else []
        self.daemon.kill()
        acknowledged = self.acknowledged()
        if held:
            self.daemon.start()
            wait("the export is back", self.daemon.offered)
            self.go_on()
        else:
            self.fall()
            self.daemon.start()
            wait("the export is back", self.daemon.offered)
            self.connect(PATIENCE)
            self.mount()
            self.verify_fio()
        resynced = self.daemon.array()["resync_bytes_at_start"] >> 20
        self.verify_ledger()
        if not held:
            self.unmount()
            self.fsck()
            self.mount()
        if state == "rebuilding":
            self.tally["rebuilding"] += "rebuilding" in before
            subprocess.run(["strake", "job", "resume", "tank/rebuild"], capture_output=True)
            output("strake", "wait", "tank", "--for", "rebuild", "--timeout", "300s")
            output("strake", "wait", "tank", "--for", "healthy", "--timeout", "300s")
        self.tally["kills"] += 1
        self.tally["held" if held else "dropped"] += 1
        self.tally["resynced_mib"] = max(self.tally["resynced_mib"], resynced)
        self.states[state] += 1
        under_way = f" ({before.count('rebuilding')} rebuilding when killed)" if before else ""
        print(f"   {self.arguments.filesystem} {number}: {state}{under_way}, {'held' if held else 'dropped'}: {acknowledged - self.acks_at_start} "
              f"commits before, {self.acknowledged() - acknowledged} after, {resynced} MiB to resynchronize", flush=True)

    def go_on(self):
        """Nobody noticed: the ledger moves on, and fio finds what it wrote before and since."""
        since = self.acknowledged()
        wait("the ledger moves on", lambda: self.more_acks(since, 3))
        open(STOP, "w").close()
        for name, process in (("the ledger", self.ledger), ("fio", self.load_fio)):
            _, said = process.communicate(timeout=600)
            if process.returncode:
                raise Violation(f"{name} noticed that the daemon was away ({process.returncode}): {said[-1500:]}")

    def fall(self):
        """The kernel gives the requests up, and the file system and its users go down."""
        self.device.disconnect()
        self.ledger.communicate(timeout=600)
        self.load_fio.communicate(timeout=600)
        if self.ledger.returncode != 5:
            raise Violation(f"the ledger ended with {self.ledger.returncode} although its file system was gone")
        self.unmount()

    def verify_fio(self):
        """Everything that fio was told is written is there, by the state that it left."""
        if not os.path.exists(STATE):
            raise Violation("fio left no state of what it wrote")
        again = [word for word in self.command if not word.startswith("--iodepth")]
        again += [f"--iodepth={DEPTH}", "--verify_only", "--verify_state_load=1", "--continue_on_error=verify"]
        ran = subprocess.run(again, capture_output=True, text=True, timeout=600)
        # fio counts requests that were refused at the daemon's end as written: those under way then, and as many that it
        # made until it looked at the first failure.
        bad = {int(at) for at in re.findall(r"verify: .* offset (\d+), length", ran.stderr)}
        if len(bad) > 2 * DEPTH or ran.returncode and not bad:
            self.tally["fio_errors"] += 1
            raise Violation(f"fio misses what it had been told is written, at {sorted(bad)}:\n{ran.stderr[-1500:]}")
        # The sixth field of fio's terse output is what it read (fio's HOWTO, "Terse output").
        self.tally["fio_verified_kib"] += int(ran.stdout.split(";")[5])

    def verify_ledger(self):
        with open("/proc/sys/vm/drop_caches", "w") as caches:
            caches.write("3\n")
        wrong = _ledger.verify(DATABASE, self.acknowledged())
        if wrong:
            self.tally["lost_acks"] += 1
            raise Violation("the ledger: " + "; ".join(wrong))

    def finish(self):
        """Parity is right as well: a scrub finds nothing, and any two members may go."""
        if self.states["rebuilding"] and not self.tally["rebuilding"]:
            raise Violation("no rebuild was under way when the daemon was killed")
        self.unmount()
        self.fsck()
        output("strake", "wait", "tank", "--for", "resync", "--timeout", "300s")
        for member in self.out[:]:
            output("strake", "array", "replace", "tank", "--member", str(member), "--with", self.free.pop(0),
                   "--overwrite", "--yes")
        output("strake", "wait", "tank", "--for", "healthy", "--timeout", "300s")
        self.daemon.scrub()
        for member in self.rng.sample(range(6), 2):
            output("strake", "array", "fail", "tank", "--member", str(member), "--accept", "redundancy", "--yes")
        self.mount()
        self.verify_ledger()
        self.unmount()
        self.fsck()
        self.device.disconnect()
        self.daemon.stop()

    def closing(self, verdict):
        return dict(filesystem=self.arguments.filesystem, consistency=self.arguments.consistency, seed=self.arguments.seed, **self.tally, states=self.states,
                    acks=self.acknowledged(), verdict=verdict)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--filesystem", choices=["xfs", "ext4"], required=True)
    parser.add_argument("--consistency", required=True)
    parser.add_argument("--file-mib", type=int, default=2)
    parser.add_argument("--commits", type=int, default=8, help="transactions before a kill, at most")
    rounds = Rounds(parser.parse_args())
    try:
        rounds.make()
        for number in range(1, rounds.arguments.kills + 1):
            rounds.round(number)
        rounds.finish()
    except (Violation, OSError, subprocess.TimeoutExpired) as violation:
        print(f"VIOLATION: {violation}", flush=True)
        print("-- end of the daemon log", flush=True)
        print("".join(open(f"{WORK}/straked.log").readlines()[-40:]), flush=True)
        print(subprocess.run(["dmesg"], capture_output=True, text=True).stdout[-3000:], flush=True)
        print(f"KILL9 {json.dumps(rounds.closing('violated'))}", flush=True)
        os._exit(1)
    print(f"KILL9 {json.dumps(rounds.closing('held'))}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
