#!/usr/bin/env python3
"""Maintenance of drives with a real kernel; runs in the guest of nvme-maintain-guest.sh.

Emulated NVMe drives with the serial numbers MAINT0 to MAINT5. MAINT1 has two namespaces. MAINT4 has a namespace that no
controller has attached. A format of MAINT5 takes seconds. Shown, in this order:

- telemetry, sanitize operations and firmware updates, which QEMU does not have, are refused, with the kernel driver and
  taken; the firmware slots are shown;
- a format with the kernel driver and taken erases the data, and changes the size of the blocks that the kernel sees;
- content, a mounted drive, a member, another serial number, and a drive that may have further controllers are refused;
- a format of one namespace leaves the data of the other, also while that one is mounted; a firmware update is refused
  then;
- the daemon is killed during a long format with the kernel driver, and starts again at once.

The data of every other namespace are compared after each format.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]
import _sysfs
from _tank import Daemon, Violation, drives, output, wait

WORK, MOUNT = "/tmp/t", "/tmp/t/mnt"
# Bytes at the start of a namespace that are written and compared.
SAMPLE = 4 << 20


def sample(node):
    """The first bytes of a namespace, as the drive has them."""
    fd = os.open(node, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return b"".join(os.pread(fd, 1 << 20, at) for at in range(0, SAMPLE, 1 << 20))
    finally:
        os.close(fd)


def fill(node):
    """Writes random data to a namespace; the hash of its first bytes."""
    with open(node, "r+b") as device:
        data = os.urandom(SAMPLE)
        device.write(data)
        device.flush()
        os.fsync(device.fileno())
    return hashlib.sha256(data).hexdigest()


def hash_of(node):
    return hashlib.sha256(sample(node)).hexdigest()


class Maintained:
    def __init__(self):
        self.began = time.monotonic()
        os.makedirs(MOUNT)
        self.daemon = Daemon(WORK)
        self.seen = {"kernel": os.uname().release}
        self.image = f"{WORK}/image"
        with open(self.image, "wb") as image:
            image.write(os.urandom(8192))

    def stage(self, what):
        print(f"-- {what} ({time.monotonic() - self.began:.0f} s)", flush=True)

    def nodes(self, serial):
        """The block devices of a controller, in the order of their namespace IDs; the kernel numbers the devices in any
        order, and hides those of single paths."""
        found = filter(os.path.exists, drives(serial))
        return sorted(found, key=lambda node: int(_sysfs.text(f"/sys/block/{os.path.basename(node)}/nsid")))

    def node(self, serial):
        found = wait(f"the kernel has {serial}", lambda: self.nodes(serial), 60)
        return found[0]

    def refused(self, why, *words):
        ran = subprocess.run(["strake", "drive", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        said = " ".join(ran.stderr.split())
        if ran.returncode == 0 or why not in said:
            raise Violation(f"{words}: not refused because {why}: {ran.returncode} {ran.stdout} {said}")
        print(f"   refused: {said}")

    def format(self, name, *words):
        return output("strake", "drive", "format", name, "--yes", *words)

    def zeroes(self, node):
        if any(sample(node)):
            raise Violation(f"{node} has data after a format")

    def same(self, node, before):
        if hash_of(node) != before:
            raise Violation(f"{node} has other data after the format of another namespace")

    def blocks(self, node):
        return int(_sysfs.text(f"/sys/block/{os.path.basename(node)}/queue/logical_block_size"))

    # The stages.

    def unsupported(self, name):
        """Commands that QEMU does not have."""
        self.refused("does not support telemetry", "telemetry", name, "--file", f"{WORK}/state.bin")
        self.refused("does not support sanitize", "sanitize", name, "--action", "block", "--yes")
        self.refused("does not support firmware updates", "firmware", name, "--file", self.image)
        self.refused("does not support the cryptographic", "format", name, "--erase", "crypto", "--yes")
        self.refused("and the request is for NOTHIS", "format", name, "--serial", "NOTHIS", "--yes")
        slots = json.loads(output("strake", "drive", "firmware", name, "--output", "json"))["slots"]
        if not any(slot["running"] and slot["revision"] for slot in slots):
            raise Violation(f"{name}: no firmware runs: {slots}")

    def one_namespace(self):
        self.stage("a drive with the kernel driver, and then taken")
        node = self.node("MAINT0")
        address = _sysfs.driven()["MAINT0"][0]
        self.unsupported(node)
        output("mkfs.ext4", "-q", "-F", node)
        before = hash_of(node)
        self.refused("holds", "format", node, "--yes")
        output("mount", node, MOUNT)
        self.refused("is in use: mounted", "format", node, "--yes", "--force")
        self.refused("is in use: mounted", "firmware", node, "--file", self.image)
        output("umount", MOUNT)
        for size in (4096, 512):
            fill(node)
            self.format(node, "--force", "--block-size", str(size), "--erase", "user")
            self.zeroes(node)
            wait(f"blocks of {size} bytes", lambda: self.blocks(node) == size, 30)
        if hash_of(node) == before:
            raise Violation("the format left the file system")
        fill(node)
        output("strake", "drive", "take", "MAINT0")
        name = f"pci:{address}"
        self.unsupported(name)
        self.format(name, "--force", "--block-size", "4096", "--erase", "user")
        output("strake", "drive", "release", "MAINT0")
        node = self.node("MAINT0")
        if self.blocks(node) != 4096:
            raise Violation(f"blocks of {self.blocks(node)} bytes after a format of the taken drive")
        self.zeroes(node)

    def two_namespaces(self):
        self.stage("a drive with two namespaces")
        first, second = self.nodes("MAINT1")
        kept = fill(second)
        fill(first)
        self.format(first, "--force")
        self.zeroes(first)
        self.same(second, kept)
        output("mkfs.ext4", "-q", "-F", second)
        output("mount", second, MOUNT)
        data = os.urandom(1 << 20)
        with open(f"{MOUNT}/file", "wb") as file:
            file.write(data)
        os.sync()
        fill(first)
        self.format(first, "--force")
        self.zeroes(first)
        self.refused("shares its controller with", "firmware", first, "--file", self.image)
        with open(f"{MOUNT}/file", "rb") as file:
            if file.read() != data:
                raise Violation("a file of the other namespace changed")
        output("umount", MOUNT)
        output("fsck.ext4", "-f", "-n", second)
        kept = fill(second)
        address = _sysfs.driven()["MAINT1"][0]
        fill(first)
        output("strake", "drive", "take", first)
        self.format(f"pci:{address}", "--force", "--erase", "user")
        output("strake", "drive", "release", f"pci:{address}")
        first, second = wait("both namespaces", lambda: (found := self.nodes("MAINT1"))[1:] and found, 60)
        self.zeroes(first)
        self.same(second, kept)

    def members(self):
        self.stage("members are refused")
        nodes = [self.node("MAINT2"), self.node("MAINT3")]
        output("strake", "array", "create", "tank", "--level", "1", "--drives", ",".join(nodes))
        for words in (["format", nodes[0], "--force"], ["sanitize", nodes[0], "--action", "block", "--force"]):
            self.refused("is member 0 of array tank", *words, "--yes")
        output("strake", "array", "unload", "tank")
        self.refused("holds a member of array tank", "format", nodes[1], "--yes")
        output("strake", "array", "import", "tank")
        wait("all members are in sync",
             lambda: {member["state"] for member in self.daemon.array()["members"]} == {"in_sync"})
        output("strake", "array", "unload", "tank")

    def unattached(self):
        self.stage("a namespace that no controller has attached")
        node = self.node("MAINT4")
        kept = fill(node)
        self.refused("further controllers", "format", node, "--force", "--yes")
        self.same(node, kept)

    def killed(self):
        self.stage("the daemon is killed during a long format")
        node = self.node("MAINT5")
        # The first format fills the limit of the drive, so that the second one takes long.
        self.format(node, "--force")
        since = time.monotonic()
        running = subprocess.Popen(["strake", "drive", "format", node, "--force", "--yes"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        wait("the format is shown", lambda: "format" in output("strake", "drive", "show", node))
        self.daemon.kill()
        running.wait()
        self.daemon.start()
        restarted = time.monotonic() - since
        # Another process waits for the drive, and excludes every other use until the end.
        if self.free(node):
            raise Violation(f"the drive is free during its format, {restarted:.1f} s after its start")
        self.refused("in use", "format", node, "--force", "--yes")
        wait("the drive can be opened again", lambda: self.free(node))
        formatted = time.monotonic() - since
        self.seen["restarted_s"], self.seen["formatted_s"] = round(restarted, 1), round(formatted, 1)
        self.format(node, "--force")
        self.zeroes(node)

    def free(self, node):
        """Whether no process has the drive open exclusively."""
        try:
            os.close(os.open(node, os.O_RDONLY | os.O_EXCL))
            return True
        except OSError:
            return False

    def run(self):
        self.daemon.start()
        self.one_namespace()
        self.two_namespaces()
        self.members()
        self.unattached()
        self.killed()
        self.daemon.stop()
        self.seen["seconds"] = int(time.monotonic() - self.began)


def main():
    maintained = Maintained()
    try:
        maintained.run()
        maintained.seen["verdict"] = "held"
    except Exception as error:
        maintained.seen["verdict"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
        print("".join(open(f"{WORK}/straked.log").readlines()[-40:]), output("dmesg")[-2000:])
    print(json.dumps(maintained.seen), flush=True)
    return maintained.seen["verdict"] != "held"


if __name__ == "__main__":
    sys.exit(main())
