#!/usr/bin/env python3
"""What power-cuts.sh does in the guest, on drives whose every request is logged: SQLite on ext4 on a RAID 6.

The members and one more slice, the diary, belong to one logged drive, so that one log has the order of all. The diary
tells how far things had come: once it says so, the array is there, the file system is mounted, or that many
transactions were acknowledged.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import _ledger
import _nbd_kernel
from _tank import Daemon, drives, output, wait

DEVICE = "/dev/nbd0"


class Diary:
    """The number of acknowledged transactions and the stage of things, in the first block of a drive, stable."""

    def __init__(self, path):
        self.place = os.open(path, os.O_WRONLY | os.O_SYNC)
        self.stage, self.number = "blank", 0

    def tell(self, stage=None, number=None):
        self.stage = stage or self.stage
        self.number = self.number if number is None else number
        os.pwrite(self.place, f"{self.number} {self.stage}\n".ljust(4096).encode(), 0)

    def acknowledge(self, number):
        self.tell(number=number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", required=True, help="a folder, under the same name as on the host")
    parser.add_argument("--commits", type=int, required=True, help="transactions in each of the stages")
    parser.add_argument("--consistency", required=True)
    arguments = parser.parse_args()
    mount = f"{arguments.work}/mnt"
    os.makedirs(mount)
    slices = drives("LOG")
    members, spare = slices[:5], slices[5]
    diary = Diary(drives("DIARY")[0])
    daemon = Daemon(arguments.work)
    daemon.start()
    output("strake", "array", "create", "tank", "--level", "6", "--drives", ",".join(members), "--strip", "64KiB",
           "--block-size", "4096", "--consistency", arguments.consistency)
    output("strake", "export", "create", "tank", "--via", "nbd", "--listen", f"unix:{daemon.nbd}")
    output("strake", "wait", "tank", "--for", "healthy", "--timeout", "300s")
    diary.tell("made")
    device = _nbd_kernel.Device(0, daemon.nbd, "tank", 120)
    device.connect()
    output("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", DEVICE)
    output("mount", "-t", "ext4", DEVICE, mount)
    os.sync()
    diary.tell("mounted")

    def work(stage, journal):
        diary.tell(stage)
        _ledger.write(f"{mount}/ledger", journal, diary.acknowledge, arguments.commits)
        print(f"   {stage}: {diary.number} transactions", flush=True)

    work("healthy", "WAL")
    work("healthy", "DELETE")
    for member in (1, 3):
        os.sync()
        output("strake", "array", "fail", "tank", "--member", str(member), "--accept", "redundancy", "--yes")
        work(f"{member} out", "WAL" if member == 1 else "DELETE")
    output("strake", "array", "replace", "tank", "--member", "1", "--with", spare)
    work("rebuilding", "WAL")
    # It may be over by now, and with the other member out `strake wait` would say that nothing was rebuilt.
    wait("the rebuild", lambda: daemon.array()["members"][1]["state"] == "in_sync", 300)
    work("rebuilt", "DELETE")
    output("umount", mount)
    device.disconnect()
    daemon.stop()
    diary.tell("stopped")
    os._exit(0)


if __name__ == "__main__":
    main()
