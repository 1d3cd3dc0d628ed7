"""What the tests in the guest share: the real daemon with one array, `tank`, and checks that say what they wanted."""

import json
import os
import signal
import subprocess
import time

PATIENCE = 120


class Violation(Exception):
    """A promise was broken."""


def output(*command):
    """What `command` printed; Violation when it failed."""
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        raise Violation(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stdout[-1500:]}{ran.stderr[-1500:]}")
    return ran.stdout


def wait(what, condition, seconds=PATIENCE):
    """Polls until `condition()` is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise Violation(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return value


def drives(prefix):
    """Devices whose serial numbers begin with `prefix`, in their order."""
    found = []
    for name in os.listdir("/sys/block"):
        for place in (f"/sys/block/{name}/device/serial", f"/sys/block/{name}/serial"):
            if os.path.exists(place) and (serial := open(place).read().strip()).startswith(prefix):
                found.append((serial, f"/dev/{name}"))
    return [path for _, path in sorted(found)]


class Daemon:
    """straked and what it says of the array `tank`."""

    def __init__(self, work):
        self.work = work
        self.socket, self.nbd = f"{work}/s.sock", f"{work}/n.sock"
        self.log = open(f"{work}/straked.log", "a")
        os.environ["STRAKE_SOCKET"] = self.socket
        os.environ["NO_COLOR"] = "1"

    def start(self):
        command = ["straked", "--state-dir", f"{self.work}/state", "--socket", self.socket, "--assemble-timeout", "20"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        wait("straked answers", self.answers)

    def answers(self):
        if self.process.poll() is not None:
            raise Violation(f"straked ended with {self.process.returncode} while starting")
        return subprocess.run(["strake", "status"], capture_output=True).returncode != 4

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60):
            raise Violation(f"straked ended with {self.process.returncode} after SIGTERM")

    def scrub(self):
        """All of the array agrees, or Violation."""
        scrub = json.loads(output("strake", "array", "scrub", "start", "tank", "--wait", "--output", "json"))
        if scrub["wrong_bytes"] or scrub["unsure_bytes"] or scrub["unreadable_bytes"]:
            raise Violation(f"the scrub found something: {scrub}")

    def array(self):
        ran = subprocess.run(["strake", "array", "show", "tank", "--output", "json"], capture_output=True, text=True)
        if ran.returncode > 2:
            raise Violation(f"array show ended with {ran.returncode}: {ran.stderr}")
        return json.loads(ran.stdout)

    def offered(self):
        """Whether the export is back; Violation when the array says that it will not be."""
        exports = json.loads(output("strake", "export", "list", "--output", "json"))["exports"]
        if [e["state"] for e in exports if e["name"] == "tank"] == ["online"]:
            return True
        array = self.array()
        if "stopped without warning" in array["reason"]:
            raise Violation(f"the array refuses to start: {array['reason']}")
        return False
