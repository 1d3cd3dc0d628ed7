"""Plugs and unplugs emulated NVMe drives for a guest that requests this in lines of text, over QEMU's monitor (QMP).

    _qmp.py SOCKET REQUESTS ANSWERS

SOCKET is the socket of the monitor; REQUESTS and ANSWERS are the two FIFOs of a serial line of the guest. Requests:

    del ID                      begins to remove the device; the guest's kernel completes this
    gone ID                     waits until the device is removed
    add ID BUS DRIVE SERIAL     adds an NVMe drive

Each is answered with "done", or with "failed: " and the reason. After the monitor has closed
its socket, requests fail. The script that begins this program ends it.
"""

import json
import socket
import sys
import threading


class Monitor:
    """QEMU's monitor, and the devices that were removed so far."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines = self.socket.makefile("rw")
        self.changed = threading.Condition()
        self.removed, self.answers = set(), []
        self.ended = False
        threading.Thread(target=self.read, daemon=True).start()
        self.call("qmp_capabilities")

    def read(self):
        """Collects answers and events until the monitor closes its socket."""
        for line in self.lines:
            message = json.loads(line)
            with self.changed:
                if "return" in message or "error" in message:
                    self.answers.append(message)
                if message.get("event") == "DEVICE_DELETED" and "device" in message["data"]:
                    self.removed.add(message["data"]["device"])
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def call(self, name, **arguments):
        """Executes one command; RuntimeError with the monitor's reason."""
        with self.changed:
            self.lines.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
            self.lines.flush()
            self.changed.wait_for(lambda: self.answers or self.ended)
            answer = self.answers.pop() if self.answers else {"error": {"desc": "the monitor ended"}}
        if "error" in answer:
            raise RuntimeError(answer["error"]["desc"])

    def gone(self, device):
        with self.changed:
            if not self.changed.wait_for(lambda: device in self.removed or self.ended, timeout=60):
                raise RuntimeError(f"{device} is still there after 60 s")


def serve(monitor, words):
    match words:
        case ["del", device]:
            monitor.removed.discard(device)
            monitor.call("device_del", id=device)
        case ["gone", device]:
            monitor.gone(device)
        case ["add", device, bus, drive, serial]:
            monitor.call("device_add", driver="nvme", id=device, bus=bus, drive=drive, serial=serial)
        case _:
            raise RuntimeError(f"unknown request: {' '.join(words)}")


def main():
    monitor = Monitor(sys.argv[1])
    requests, answers = open(sys.argv[2]), open(sys.argv[3], "w")
    for line in requests:
        try:
            serve(monitor, line.split())
            answer = "done"
        except RuntimeError as error:
            answer = f"failed: {error}"
        print(f"{line.strip()}: {answer}", flush=True)
        print(answer, file=answers, flush=True)


main()
