#!/usr/bin/env python3
"""`strake drive take` and `release` with a real kernel; runs in the guest of nvme-take-guest.sh.

Emulated NVMe drives with the serial numbers TAKE0 to TAKE8, of which 6 and 7 share an IOMMU group. QEMU adds and
removes drives on request, over the second serial line (_qmp.py). Shown, in this order:

- a dry run changes nothing; one drive is taken and released, and the kernel reads the same data;
- a drive shows its firmware slots and is formatted, with the kernel driver and taken;
- a drive that is mounted, used as swap, part of a device-mapper device, open exclusively, or in the IOMMU group of
  another is refused before any write to sysfs; of a mount and a take that race, one wins, and each does once;
- a RAID 6 of six taken drives serves NBD; under its load, drives are unplugged, pulled without a request, removed from
  the bus, reset, and have their decoding turned off; they return, also at another port; no client sees an error;
- the daemon is killed under load; after its start the drives are taken, and no acknowledged write is lost;
- the daemon is killed right after every write to sysfs of take and of release of two drives, and at random moments: the
  next start leaves each drive taken or with the kernel, and the same command succeeds. It runs on until the signal
  arrives; the output counts the kills that left a drive between both states, or one drive in each;
- after the release of all drives, the array is imported on the block devices of the kernel, with the same data.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import traceback
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]
import _nbd
import _sysfs
from _tank import Daemon, Violation, output, wait

WORK, MOUNT = "/tmp/t", "/tmp/t/mnt"
MEMBERS = [f"TAKE{n}" for n in range(6)]
# Blocks of 4 KiB: what is written once, what the steady load uses, and what is written until the daemon is killed.
FILLED, STEADY, CUT_OFF = "0:1024", "8192:512", "2048:1024"
# How long a member may take to be out of use once its drive does not answer, in milliseconds: 1 s, and as much again
# because the processors are emulated, and a measurement begins before the command that pulls the drive.
NOTICE_MS = 2000
# Writes to sysfs that take or release a drive.
WRITES = 3


class Line:
    """The serial line to _qmp.py."""

    def __init__(self):
        subprocess.run(["stty", "-F", "/dev/ttyS1", "raw", "-echo"], check=True)
        self.line = open("/dev/ttyS1", "r+b", buffering=0)

    def __call__(self, *words):
        self.line.write(f"{' '.join(words)}\n".encode())
        answer = self.line.readline().decode().strip()
        if answer != "done":
            raise Violation(f"QEMU, {' '.join(words)}: {answer}")


class Load:
    """A client that writes, and reads back what it wrote, until it is stopped. Any error is a violation."""

    def __init__(self, socket, seed):
        self.until, self.progress = f"{WORK}/enough", f"{WORK}/progress"
        for path in (self.until, self.progress):
            if os.path.exists(path):
                os.remove(path)
        self.why = None
        arguments = SimpleNamespace(socket=socket, export="tank", windows=STEADY, seed=seed, until=self.until,
                                    progress=self.progress, model=f"{WORK}/steady")
        self.thread = threading.Thread(target=self.run, args=[arguments], daemon=True)
        self.thread.start()
        self.goes_on()

    def run(self, arguments):
        try:
            _nbd.steady(arguments)
        except BaseException as error:
            self.why = f"{type(error).__name__}: {error}"

    def turns(self):
        return int(_sysfs.text(self.progress) or 0)

    def check(self):
        if self.why:
            raise Violation(f"the client saw an error: {self.why}")

    def has_turned(self, turns):
        self.check()
        return self.turns() > turns

    def goes_on(self):
        turns = self.turns()
        wait("the client goes on", lambda: self.has_turned(turns))

    def stop(self):
        open(self.until, "w").close()
        self.thread.join()
        self.check()


class Drives:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rng = random.Random(arguments.seed)
        self.began = time.monotonic()
        os.makedirs(MOUNT)
        self.plug = Line()
        self.daemon = Daemon(WORK)
        self.watch = _sysfs.Watch()
        self.seen = {"kernel": os.uname().release, "seed": arguments.seed}
        self.at = {}

    def stage(self, what):
        print(f"-- {what} ({time.monotonic() - self.began:.0f} s)", flush=True)

    # Commands.

    def strake(self, *words):
        """Runs a command that must succeed; what it printed, and how many milliseconds it took."""
        began = time.monotonic()
        printed = output("strake", *words)
        return printed, int((time.monotonic() - began) * 1000)

    def refused(self, why, *drives):
        """`drive take` of the drives is refused for a reason, and changes nothing."""
        before = _sysfs.picture()
        self.watch.writes = []
        ran = subprocess.run(["strake", "drive", "take", *drives], capture_output=True, text=True)
        said = " ".join(ran.stderr.split())
        if ran.returncode != 3 or why not in said:
            raise Violation(f"take {drives}: not refused because {why}: {ran.returncode} {ran.stdout} {said}")
        if self.watch.writes or _sysfs.picture() != before:
            raise Violation(f"take {drives} was refused, but {self.watch.writes} was written: {_sysfs.picture()}")
        print(f"   refused: {said}")

    def take(self, *serials):
        _, took = self.strake("drive", "take", *serials)
        for serial in serials:
            if _sysfs.state(self.at[serial]) != _sysfs.TAKEN:
                raise Violation(f"{serial} was not taken: {_sysfs.picture()}")
        return took

    def release(self, *serials):
        _, took = self.strake("drive", "release", *serials)
        for serial in serials:
            if _sysfs.state(self.at[serial]) != _sysfs.FREE:
                raise Violation(f"{serial} was not released: {_sysfs.picture()}")
        self.kernel_has(*serials)
        return took

    def kernel_has(self, *serials):
        wait(f"the kernel has {serials}", lambda: set(serials) <= set(_sysfs.driven()), 60)

    def node(self, serial):
        return _sysfs.driven()[serial][1]

    def listed(self):
        """The drives that the daemon lists, by serial number."""
        listed = json.loads(self.strake("drive", "list", "--output", "json")[0])["drives"]
        return {drive["serial"]: drive for drive in listed}

    # The array.

    def members(self):
        return self.daemon.array()["members"]

    def states(self):
        return [member["state"] for member in self.members()]

    def in_sync(self):
        wait("all members are in sync", lambda: set(self.states()) == {"in_sync"})

    def returned(self):
        """All members are taken and in sync, at whatever address."""
        self.in_sync()
        for serial, member in zip(MEMBERS, self.members(), strict=True):
            if not member["path"].startswith("pci:"):
                raise Violation(f"{serial} returned, and was not taken: {member['path']}")
            self.at[serial] = member["path"].removeprefix("pci:")

    def client(self, verb, model="model", **arguments):
        verbs = {"fill": _nbd.fill, "verify": _nbd.verify, "crash": _nbd.crash}
        path, socket = f"{WORK}/{model}", self.daemon.nbd
        try:
            verbs[verb](SimpleNamespace(socket=socket, export="tank", model=path, forgive=None, **arguments))
        except (SystemExit, _nbd.Refused, OSError) as error:
            raise Violation(f"{verb}: {error}") from error

    def verify(self):
        """All that clients wrote is there, also what was written under faults."""
        self.client("verify")
        self.client("verify", model="steady")

    def resets(self, serial):
        """How often the daemon reset a drive since it opened it."""
        shown, _ = self.strake("drive", "show", f"pci:{self.at[serial]}")
        found = re.search(r"resets: *(\d+)", shown)
        return int(found[1]) if found else 0

    def noticed(self, member, since):
        """Milliseconds after which a member was out of use, by its event; None while there is none."""
        events = json.loads(self.strake("event", "list", "--output", "json")[0])["events"]
        out = [int(event["time_us"]) for event in events
               if event["kind"] in ("member_missing", "member_failed") and event.get("member") == member]
        late = [at for at in out if at > since * 1e6]
        return int(min(late) / 1000 - since * 1000) if late else None

    def is_out(self, member, since, limit_ms=None):
        wait(f"member {member} is out of use", lambda: self.noticed(member, since) is not None)
        took = self.noticed(member, since)
        if limit_ms and took > limit_ms:
            raise Violation(f"member {member} was out of use only after {took} ms")
        return took

    # The stages.

    def one_drive(self):
        self.stage("one drive is taken, and released")
        before = _sysfs.picture()
        planned, _ = self.strake("drive", "take", "TAKE8", "--dry-run")
        if self.watch.writes or _sysfs.picture() != before or "driver_override" not in planned:
            raise Violation(f"a dry run: {planned}, {self.watch.writes}, {_sysfs.picture()}")
        data = os.urandom(1 << 20)
        with open(self.node("TAKE8"), "r+b") as device:
            device.write(data)
            device.flush()
            os.fsync(device.fileno())
        self.seen["take_ms"] = self.take("TAKE8")
        if len(self.watch.writes) != WRITES:
            raise Violation(f"the writes of take: {self.watch.writes}")
        if self.listed()["TAKE8"]["state"] != "taken":
            raise Violation(f"listed: {self.listed()['TAKE8']}")
        self.seen["release_ms"] = self.release("TAKE8")
        with open(self.node("TAKE8"), "rb") as device:
            if device.read(len(data)) != data:
                raise Violation("the kernel reads other data")

    def maintained(self):
        """A drive with the kernel driver, and then taken: its firmware slots, and a format that leaves zeroes."""
        self.stage("a drive is formatted, and shows its firmware")
        for taken in [False, True]:
            with open(self.node("TAKE8"), "r+b") as device:
                device.write(os.urandom(1 << 20))
                device.flush()
                os.fsync(device.fileno())
            node = self.node("TAKE8")
            if taken:
                self.take("TAKE8")
            name = f"pci:{self.at['TAKE8']}" if taken else node
            slots = json.loads(self.strake("drive", "firmware", name, "--output", "json")[0])["slots"]
            if not any(slot["running"] and slot["revision"] for slot in slots):
                raise Violation(f"{name}: no firmware runs: {slots}")
            self.strake("drive", "format", name, "--erase", "user", "--serial", "TAKE8", "--force", "--yes")
            if taken:
                self.release("TAKE8")
            with open(self.node("TAKE8"), "rb") as device:
                if any(device.read(1 << 20)):
                    raise Violation(f"{name} has data after a format")

    def refusals(self):
        self.stage("drives in use are refused")
        free = "TAKE5"
        output("mkfs.ext4", "-q", "-F", self.node("TAKE8"))
        output("mount", self.node("TAKE8"), MOUNT)
        self.refused("mounted at", free, "TAKE8")
        output("umount", MOUNT)
        output("mkswap", self.node("TAKE8"))
        output("swapon", self.node("TAKE8"))
        self.refused("swap", free, "TAKE8")
        output("swapoff", self.node("TAKE8"))
        output("dmsetup", "create", "--noudevsync", "held", "--table", f"0 8192 linear {self.node('TAKE8')} 0")
        self.refused("part of dm-", free, "TAKE8")
        output("dmsetup", "remove", "--noudevsync", "held")
        held = os.open(self.node("TAKE8"), os.O_RDONLY | os.O_EXCL)
        self.refused("open in another program", free, "TAKE8")
        os.close(held)
        self.refused(f"shares its IOMMU group with {self.at['TAKE7']}", free, "TAKE6")

    def races(self):
        """Of a mount and a take, one wins; each does once. The mount begins later from round to round."""
        self.stage("a mount races a take")
        won, rounds = [], 6
        for number in range(rounds):
            node = self.node("TAKE8")
            output("mkfs.ext4", "-q", "-F", node)
            taking = subprocess.Popen(["strake", "drive", "take", "TAKE8"], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True)
            time.sleep(number / (rounds - 1) * self.seen["take_ms"] / 1000)
            mounted = subprocess.run(["mount", node, MOUNT], capture_output=True, text=True)
            _, why = taking.communicate()
            state = _sysfs.state(self.at["TAKE8"])
            if mounted.returncode == 0:
                if taking.returncode == 0 or state != _sysfs.FREE:
                    raise Violation(f"a mounted drive was taken: {state}, {why}")
                open(f"{MOUNT}/a", "w").close()
                output("umount", MOUNT)
            elif taking.returncode or state != _sysfs.TAKEN:
                raise Violation(f"neither won: {state}, {why}, {mounted.stderr}")
            else:
                self.release("TAKE8")
            won.append("mount" if mounted.returncode == 0 else "take")
        if set(won) != {"mount", "take"}:
            raise Violation(f"one side won all races: {won}")
        self.seen["races"] = won

    def make(self):
        self.stage("six drives are taken, and become a RAID 6")
        self.take(*MEMBERS)
        drives = ",".join(f"pci:{self.at[serial]}" for serial in MEMBERS)
        self.strake("array", "create", "tank", "--level", "6", "--drives", drives, "--strip", "64KiB")
        self.strake("export", "create", "tank", "--via", "nbd", "--listen", f"unix:{self.daemon.nbd}")
        wait("the array is initialized", lambda: "initializing" not in self.daemon.array()["states"])
        self.client("fill", windows=FILLED)
        self.client("verify")

    def unplugged(self, load):
        self.stage("two drives are unplugged")
        for member in (4, 5):
            since = time.time()
            self.plug("del", f"nv{member}")
            self.plug("gone", f"nv{member}")
            self.is_out(member, since)
            requested = self.requested(self.at[MEMBERS[member]])
            self.seen[f"unplugged_{member}_ms"] = self.is_out(member, requested, NOTICE_MS)
            load.goes_on()
        if self.states() != ["in_sync"] * 4 + ["missing"] * 2:
            raise Violation(f"members: {self.members()}")
        self.stage("they return, one at another port")
        self.plug("add", "nv4", "rp4", "d4", "TAKE4")
        self.plug("add", "nv5", "rp8", "d5", "TAKE5")
        self.returned()
        load.goes_on()

    def requested(self, address):
        """When the kernel last requested a device from its driver, by its log, which counts from the start."""
        what = f"{address}: Relaying device request to user"
        at = [re.search(r"\[ *([0-9.]+)\]", line)[1] for line in output("dmesg").splitlines() if what in line]
        if not at:
            raise Violation(f"the kernel did not request {address}: {output('dmesg')[-1500:]}")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + float(at[-1])

    def pulled(self, load):
        self.stage("a drive is pulled without a request, and returns")
        # Power indicator and power controller off (PCIe, slot control): QEMU removes the drive without a request.
        since = time.time()
        output("setpci", "-s", _sysfs.port(self.at["TAKE3"]), "CAP_EXP+18.w=0700:0700")
        self.plug("del", "nv3")
        self.seen["pulled_ms"] = self.is_out(3, since, NOTICE_MS)
        load.goes_on()
        self.plug("gone", "nv3")
        wait("the kernel removed the device", lambda: not os.path.exists(f"{_sysfs.DEVICES}/{self.at['TAKE3']}"))
        self.plug("add", "nv3", "rp9", "d3", "TAKE3")
        self.returned()
        load.goes_on()
        self.stage("a drive is removed from the bus, and found again")
        since = time.time()
        self.write(f"{_sysfs.DEVICES}/{self.at['TAKE2']}/remove", "1")
        self.is_out(2, since)
        self.seen["removed_ms"] = self.is_out(2, self.requested(self.at["TAKE2"]), NOTICE_MS)
        load.goes_on()
        self.write("/sys/bus/pci/rescan", "1")
        self.returned()
        load.goes_on()

    def write(self, path, words):
        """Writes to a file of sysfs, which must not hang."""
        subprocess.run(["sh", "-c", f"echo {words} >{path}"], check=True, timeout=30)

    def reset(self, load):
        self.stage("a drive is reset by others, and the decoding of another is turned off")
        since, before = time.time(), {serial: self.resets(serial) for serial in ("TAKE0", "TAKE1")}
        self.write(f"{_sysfs.DEVICES}/{self.at['TAKE0']}/reset", "1")
        wait("the driver resets TAKE0", lambda: self.resets("TAKE0") > before["TAKE0"])
        load.goes_on()
        self.in_sync()
        load.goes_on()
        output("setpci", "-s", self.at["TAKE1"], "COMMAND=0")
        wait("the driver resets TAKE1", lambda: self.resets("TAKE1") > before["TAKE1"])
        load.goes_on()
        self.in_sync()
        load.goes_on()
        # The driver repairs both before the array stops waiting.
        out = [member for member in (0, 1) if self.noticed(member, since) is not None]
        if out:
            raise Violation(f"members {out} were put out of use by a reset that the driver repairs")

    def faults(self):
        load = Load(self.daemon.nbd, self.rng.randrange(1 << 31))
        self.unplugged(load)
        self.pulled(load)
        self.reset(load)
        load.stop()
        self.verify()

    def restart(self):
        self.stage("the daemon is killed under load")
        self.client("crash", windows=CUT_OFF, seed=self.rng.randrange(1 << 31), after=60, kill=self.daemon.process.pid)
        self.daemon.process.wait()
        self.daemon.start()
        wait("the export is back", self.daemon.offered)
        self.in_sync()
        self.verify()
        self.strake("export", "remove", "tank")
        self.strake("array", "unload", "tank")
        self.release(*MEMBERS)

    def settled(self, serial):
        """Whether the drive is taken, and listed so, or is the kernel's: nothing in between."""
        state = _sysfs.state(self.at[serial])
        if state == _sysfs.FREE:
            return serial in _sysfs.driven()
        return state == _sysfs.TAKEN and self.listed().get(serial, {}).get("path") == f"pci:{self.at[serial]}"

    def interrupt(self, verb, after, delay):
        """Kills the daemon so many seconds after a write of the command; the next start completes or undoes it. Returns
        whether a drive was in between, or one drive in each state."""
        pair = ["TAKE0", "TAKE1"]
        process = self.daemon.process
        self.watch.kill(process.pid, after, delay)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = subprocess.Popen(["strake", "drive", verb, *pair], **quiet)
        process.wait(60)
        command.wait(60)
        between = [_sysfs.state(self.at[serial]) for serial in pair]
        self.daemon.start()
        for serial in pair:
            wait(f"{serial} is settled", lambda serial=serial: self.settled(serial), 60)
        after_start = [_sysfs.driver(self.at[serial]) for serial in pair]
        print(f"   {verb}, killed {delay:.3f} s after write {after}: {between}, then {after_start}")
        getattr(self, verb)(*pair)
        return not set(between) <= {_sysfs.TAKEN, _sysfs.FREE} or between[0] != between[1]

    def kills(self):
        self.stage("the daemon is killed after every write of take and of release")
        phases = [(write, 0.0) for write in range(1, 2 * WRITES + 1)]
        random_writes = [self.rng.randint(1, 2 * WRITES) for _ in range(self.arguments.kills)]
        phases += [(write, self.rng.random() / 2) for write in random_writes]
        between = {"take": 0, "release": 0}
        for phase in phases:
            for verb in between:
                between[verb] += self.interrupt(verb, *phase)
        self.seen["kills"], self.seen["kills_between"] = 2 * len(phases), between
        if not between["take"]:
            raise Violation("no kill was between the writes of take")

    def kernel_again(self):
        self.stage("the array runs on the block devices of the kernel")
        self.strake("array", "import", "tank")
        wanted, found = [self.node(serial) for serial in MEMBERS], [member["path"] for member in self.members()]
        if found != wanted:
            raise Violation(f"members {found}, not {wanted}")
        self.strake("export", "create", "tank", "--via", "nbd", "--listen", f"unix:{self.daemon.nbd}")
        self.verify()
        self.daemon.scrub()
        self.daemon.stop()

    def run(self):
        self.stage("nine drives, two of which share a group")
        every = [f"TAKE{n}" for n in range(9)]
        self.kernel_has(*every)
        self.at = {serial: address for serial, (address, _) in _sysfs.driven().items()}
        self.daemon.start()
        self.one_drive()
        self.maintained()
        self.refusals()
        self.races()
        self.make()
        self.faults()
        self.restart()
        self.kills()
        self.kernel_again()
        self.seen["seconds"] = int(time.monotonic() - self.began)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    drives = Drives(parser.parse_args())
    try:
        drives.run()
        drives.seen["verdict"] = "held"
    except Exception as error:
        drives.seen["verdict"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
        print("".join(open(f"{WORK}/straked.log").readlines()[-40:]), output("dmesg")[-2000:])
    print(json.dumps(drives.seen), flush=True)
    return drives.seen["verdict"] != "held"


if __name__ == "__main__":
    sys.exit(main())
