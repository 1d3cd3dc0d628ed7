#!/usr/bin/env python3
"""A Linux host in the rig's guest uses an array of this machine over NVMe/TCP; runs on this machine, and does here what
the guest asks for: killing the daemon, failing members, and so on. What the guest does is in `_nvme_host.sh`."""

import argparse
import json
import os
import socketserver
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _tank import Daemon, Violation, output

HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"
MODULES = "virtio_net,nvme_tcp,nvme_fabrics,xfs"
TOLD = "NVMEHOST "


class Machine:
    """What the guest may ask for, a word each."""

    def __init__(self, work, mib):
        self.work, self.mib = work, mib
        self.daemon = Daemon(work)
        self.drives = [f"{work}/d{number}" for number in range(10)]
        self.unused = iter(self.drives[6:])
        for path in self.drives:
            with open(path, "wb") as drive:
                drive.truncate(mib << 20)

    def make(self):
        self.daemon.start()
        output("strake", "array", "create", "tank", "--level", "6", "--drives", ",".join(self.drives[:6]),
               "--strip", "64KiB", "--block-size", "4096")
        output("strake", "export", "create", "tank", "--via", "nvme-tcp", "--listen", "127.0.0.1:0",
               "--allow-host", HOST)
        (export,) = json.loads(output("strake", "export", "list", "--output", "json"))["exports"]
        self.listen, self.nqn = export["listen"], export["nqn"]
        return self.listen.rsplit(":", 1)[1], self.nqn

    def add_namespace(self):
        """Another array in the same subsystem. It is in memory, so it is not there after a restart."""
        output("strake", "array", "create", "beside", "--level", "1", "--drives", "ram:32MiB,ram:32MiB")
        output("strake", "export", "create", "beside", "--via", "nvme-tcp", "--listen", self.listen, "--nqn", self.nqn,
               "--allow-host", HOST)

    def remove_namespace(self):
        output("strake", "export", "remove", "beside", "--force")

    def restart_after_kill(self):
        """The daemon is gone for a moment, as after a crash."""
        self.daemon.kill()
        self.daemon.start()

    def fail_two(self):
        for member in ("1", "4"):
            output("strake", "array", "fail", "tank", "--member", member, "--accept", "redundancy", "--yes")

    def rebuild(self):
        for _ in range(2):
            output("strake", "array", "add", "tank", "--drive", next(self.unused))
        output("strake", "wait", "tank", "--for", "rebuild", "--timeout", "10m")

    def grow(self):
        """Every file that is a member now is made larger, and the array uses that."""
        output("strake", "wait", "tank", "--for", "healthy", "--timeout", "10m")
        array = json.loads(output("strake", "array", "show", "tank", "--output", "json"))
        for member in array["members"]:
            os.truncate(member["path"], self.mib + 128 << 20)
        output("strake", "array", "grow", "tank")

    def scrub(self):
        self.daemon.scrub()


WORDS = {"add": Machine.add_namespace, "remove": Machine.remove_namespace, "kill": Machine.restart_after_kill,
         "fail": Machine.fail_two, "rebuild": Machine.rebuild, "grow": Machine.grow}


class Request(socketserver.StreamRequestHandler):
    def handle(self):
        word = self.rfile.readline().decode().strip()
        began = time.monotonic()
        try:
            WORDS[word](self.server.machine)
            answer = "done"
        except (Violation, KeyError, subprocess.TimeoutExpired) as error:
            answer = f"failed: {error}".replace("\n", " ")
        print(f"here: {word}: {answer}, {time.monotonic() - began:.1f} s", flush=True)
        self.wfile.write(f"{answer}\n".encode())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True


def boot(arguments, words):
    """Runs the guest to its end; its exit code, and what it told as name and value."""
    script = f"{arguments.work}/guest.sh"
    with open(script, "w") as file:
        values = "".join(f"export {name}={value}\n" for name, value in words.items())
        file.write(f"{values}. /host{os.path.dirname(os.path.abspath(__file__))}/_nvme_host.sh\n")
    environment = dict(os.environ, TIMEOUT="2700", SMP="4", MEM="1024", MODS=MODULES, LOG=f"{arguments.work}/log")
    guest = [f"{arguments.rig}/run-vm.sh", arguments.kernel, script, "-netdev", "user,id=n0", "-device",
             "virtio-net-pci,netdev=n0,romfile="]
    told = {}
    with subprocess.Popen(guest, env=environment, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout:
            line = line.strip()
            print(line, flush=True)
            if line.startswith(TOLD):
                name, _, value = line[len(TOLD):].partition("=")
                told[name] = value
    return process.returncode, told


def main():
    parser = argparse.ArgumentParser()
    for name in ("rig", "kernel", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--xfstests", default="")
    parser.add_argument("--stress", default="3000")
    arguments = parser.parse_args()
    # What tortures a file system needs more room than the rest.
    machine = Machine(arguments.work, 512 if arguments.xfstests else 128)
    port, nqn = machine.make()
    with Server(("127.0.0.1", 0), Request) as server:
        server.machine = machine
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = {"PORT": port, "NQN": nqn, "HOSTNQN": HOST, "ASK": server.server_address[1]}
        words |= {"XFSTESTS": arguments.xfstests, "STRESS": arguments.stress}
        code, told = boot(arguments, words)
        server.shutdown()
    try:
        machine.scrub()
    finally:
        machine.daemon.stop()
    verdict = "held" if code == 0 else "failed"
    print(json.dumps(dict(told, verdict=verdict)))
    sys.exit(0 if code == 0 else 1)


if __name__ == "__main__":
    main()
