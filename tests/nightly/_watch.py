"""Records writes to the files of sysfs that bind drivers of PCI devices, and kills a process at one of them.

    _watch.py LOG [--kill PID --after NUMBER]

LOG gets the path of each file that is written, in order, one a line, and first the line "ready". With --kill, the process
is killed (SIGKILL) at the write of this number, and the program ends; otherwise it runs until it is killed.
"""

import argparse
import ctypes
import glob
import os
import signal
import struct

# inotify(7): a write to a watched file, and the fixed part of an event.
IN_MODIFY = 2
HEAD = struct.Struct("iIII")


def watched():
    paths = ["/sys/bus/pci/drivers_probe"]
    paths += glob.glob("/sys/bus/pci/drivers/nvme/*bind") + glob.glob("/sys/bus/pci/drivers/vfio-pci/*bind")
    return paths + glob.glob("/sys/bus/pci/devices/*/driver_override")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("--kill", type=int)
    parser.add_argument("--after", type=int)
    args = parser.parse_args()
    libc = ctypes.CDLL(None, use_errno=True)
    inotify = libc.inotify_init1(os.O_CLOEXEC)
    names = {}
    for path in watched():
        number = libc.inotify_add_watch(inotify, path.encode(), IN_MODIFY)
        if number < 0:
            raise OSError(ctypes.get_errno(), path)
        names[number] = path
    writes = 0
    with open(args.log, "w", buffering=1) as log:
        print("ready", file=log)
        while True:
            events = os.read(inotify, 4096)
            while events:
                number, _, _, length = HEAD.unpack_from(events)
                events = events[HEAD.size + length :]
                writes += 1
                print(names[number], file=log)
                if args.kill and writes >= args.after:
                    os.kill(args.kill, signal.SIGKILL)
                    return


main()
