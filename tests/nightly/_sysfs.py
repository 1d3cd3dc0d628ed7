"""What sysfs shows of the NVMe controllers of this host, and what is written there to bind drivers."""

import ctypes
import glob
import os
import signal
import struct
import threading

DEVICES, DRIVERS = "/sys/bus/pci/devices", "/sys/bus/pci/drivers"
# PCI class of an NVMe controller.
CLASS_NVME = "0x010802"
# inotify(7): a write to a watched file, and the fixed part of an event.
IN_MODIFY = 2
HEAD = struct.Struct("iIII")


def text(path):
    """What is in a file, without space at its ends; None when there is none."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def driver(address):
    """The driver of a function; None when it has none."""
    link = f"{DEVICES}/{address}/driver"
    return os.path.basename(os.readlink(link)) if os.path.islink(link) else None


def state(address):
    """The driver of a function and its only driver."""
    return driver(address), text(f"{DEVICES}/{address}/driver_override")


TAKEN, FREE = ("vfio-pci", "vfio-pci"), ("nvme", "(null)")


def picture():
    """Every NVMe function, with its driver and its only driver."""
    functions = sorted(os.listdir(DEVICES))
    return {name: state(name) for name in functions if text(f"{DEVICES}/{name}/class") == CLASS_NVME}


def driven():
    """The drives that the kernel has a block device of: by serial number, the address and the path of the device."""
    found = {}
    for controller in glob.glob("/sys/class/nvme/nvme*"):
        nodes = [f"/dev/{os.path.basename(path)}" for path in glob.glob(f"{controller}/nvme*n1")]
        serial, address = text(f"{controller}/serial"), text(f"{controller}/address")
        if serial and address and nodes and os.path.exists(nodes[0]):
            found[serial] = (address, nodes[0])
    return found


def port(address):
    """The port above a function."""
    return os.path.basename(os.path.dirname(os.path.realpath(f"{DEVICES}/{address}")))


class Watch:
    """Records writes to the files of sysfs that bind drivers. May kill a process at one of them."""

    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self.inotify = libc.inotify_init1(os.O_CLOEXEC)
        self.names, self.writes, self.victim = {}, [], None
        paths = ["/sys/bus/pci/drivers_probe", *glob.glob(f"{DEVICES}/*/driver_override")]
        paths += [f"{DRIVERS}/{name}/{file}" for name in ("nvme", "vfio-pci") for file in ("bind", "unbind", "new_id")]
        for path in paths:
            number = libc.inotify_add_watch(self.inotify, path.encode(), IN_MODIFY)
            if number < 0:
                raise OSError(ctypes.get_errno(), path)
            self.names[number] = path
        threading.Thread(target=self.run, daemon=True).start()

    def kill(self, pid, after, delay):
        """Forgets the writes so far, and kills a process so many seconds after the write of this number."""
        self.writes = []
        self.victim = (pid, after, delay)

    def run(self):
        while True:
            events = os.read(self.inotify, 4096)
            while events:
                number, _, _, length = HEAD.unpack_from(events)
                events = events[HEAD.size + length :]
                self.writes.append(self.names[number])
                if self.victim and len(self.writes) >= self.victim[1]:
                    pid, _, delay = self.victim
                    self.victim = None
                    threading.Timer(delay, os.kill, (pid, signal.SIGKILL)).start()
