#!/usr/bin/env python3
"""What power-cuts.sh does on the host: the drives as they were at every flush, and whether array, file system and
database are whole on each."""

import argparse
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import _ledger
from _tank import Daemon, Violation, output, wait


class Replay:
    def __init__(self, arguments):
        self.work, self.arguments = arguments.work, arguments
        self.xtask = [arguments.xtask, "write-log"]
        self.log = f"{self.work}/log"
        # The drives as they were at the flush that is looked at, and copies of them that recovery may change.
        self.kept = [f"{self.work}/kept{n}" for n in range(arguments.slices)]
        self.tried = [f"{self.work}/tried{n}" for n in range(arguments.slices)]
        for path in self.kept:
            with open(path, "wb") as file:
                file.truncate(arguments.slice)
        self.tally = {"flushes": 0, "torn": 0, "arrays": 0, "resynced": 0, "filesystems": 0, "acks": 0}
        self.stages = {}

    def apply(self, start, end, images, *options):
        if start < end:
            output(*self.xtask, "apply", self.log, "--from", str(start), "--to", str(end), "--slice",
                   str(self.arguments.slice), *options, *images)

    def all(self):
        cuts = [int(line) for line in output(*self.xtask, "cuts", self.log).split()]
        at = 0
        for index, (cut, following) in enumerate(zip(cuts, [*cuts[1:], None])):
            self.apply(at, cut, self.kept)
            at = cut
            if index % 50 == 0:
                print(f"   {index} of {len(cuts)} flushes: {self.diary(self.kept)}", flush=True)
            if index % self.arguments.every:
                continue
            self.look(cut, None)
            if following and self.arguments.torn and self.tally["flushes"] % self.arguments.torn == 1:
                self.look(cut, following)

    def diary(self, images):
        """How many transactions were acknowledged, and the stage of things."""
        with open(images[-1], "rb") as file:
            words = file.read(4096).rstrip(b"\0 \n").decode().split(" ", 1)
        return (int(words[0]), words[1]) if len(words) == 2 else (0, "blank")

    def look(self, cut, beyond):
        """The state at `cut`, and with a drawn half of what was written up to `beyond` where that is given."""
        for kept, tried in zip(self.kept, self.tried):
            output("cp", "--sparse=always", kept, tried)
        if beyond:
            self.apply(cut, beyond, self.tried, "--some", str(self.arguments.seed + cut))
        acknowledged, stage = self.diary(self.tried)
        if stage == "blank":
            # No array was promised yet.
            return
        self.tally["torn" if beyond else "flushes"] += 1
        self.stages[stage] = self.stages.get(stage, 0) + 1
        self.tally["acks"] = max(self.tally["acks"], acknowledged)
        try:
            self.check(acknowledged, stage)
        except Violation as violation:
            torn = f", and some of what was written up to {beyond}" if beyond else ""
            raise Violation(f"entries up to {cut}{torn} ({acknowledged} acknowledged, {stage}): {violation}") from None

    def check(self, acknowledged, stage):
        shutil.rmtree(f"{self.work}/state", ignore_errors=True)
        daemon = Daemon(self.work)
        daemon.start()
        try:
            self.assemble(daemon, stage)
            uri = f"nbd+unix:///tank?socket={daemon.nbd}"
            # What the client sees at once, while the resynchronization may still be under way.
            image = f"{self.work}/image"
            if os.path.exists(image):
                os.remove(image)
            output("nbdcopy", uri, image)
            output("strake", "wait", "tank", "--for", "resync", "--timeout", "120s")
            daemon.scrub()
            self.tally["arrays"] += 1
            if stage != "made":
                self.filesystem(image, acknowledged)
        finally:
            daemon.stop()
            daemon.log.close()

    def assemble(self, daemon, stage):
        members = ",".join(self.tried[:-1])
        ran = subprocess.run(["strake", "array", "import", "tank", "--drives", members], capture_output=True, text=True)
        if ran.returncode > 2:
            raise Violation(f"import ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
        exports = json.loads(output("strake", "export", "list", "--output", "json"))["exports"]
        if stage == "made" and not exports:
            # An export is known to the members a second after it was made; the state directory is not here.
            output("strake", "export", "create", "tank", "--via", "nbd", "--listen", f"unix:{daemon.nbd}")
        try:
            wait("the array is served", daemon.offered, 20)
        except Violation as violation:
            raise Violation(f"{violation}; {ran.stdout}{ran.stderr}{json.dumps(daemon.array())[:1500]}") from None
        self.tally["resynced"] += daemon.array()["resync_bytes_at_start"] > 0

    def filesystem(self, image, acknowledged):
        # What mounting does: the journal is replayed and orphans are put away. Then nothing is left to mend.
        first = subprocess.run(["e2fsck", "-p", image], capture_output=True, text=True)
        if first.returncode > 1:
            raise Violation(f"e2fsck -p ended with {first.returncode}:\n{first.stdout[-1500:]}{first.stderr[-500:]}")
        output("e2fsck", "-fn", image)
        self.tally["filesystems"] += 1
        there = output("debugfs", "-R", "ls -p /", image)
        for suffix in ("", "-wal", "-journal"):
            path = f"{self.work}/ledger{suffix}"
            for stale in (path, f"{self.work}/ledger-shm"):
                if os.path.exists(stale):
                    os.remove(stale)
            if f"/ledger{suffix}/" in there:
                output("debugfs", "-R", f"dump /ledger{suffix} {path}", image)
        wrong = _ledger.verify(f"{self.work}/ledger", acknowledged)
        if wrong:
            raise Violation("the ledger: " + "; ".join(wrong))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", required=True, help="where `log` is")
    parser.add_argument("--xtask", required=True, help="the program cargo xtask runs")
    parser.add_argument("--slice", type=int, required=True, help="bytes of a drive")
    parser.add_argument("--slices", type=int, required=True, help="drives, of which the last is the diary")
    parser.add_argument("--torn", type=int, default=4, help="after every so many flushes also lose half of what follows")
    parser.add_argument("--every", type=int, default=1, help="only every so many flushes")
    parser.add_argument("--seed", type=int, required=True)
    replay = Replay(parser.parse_args())
    verdict = "whole"
    try:
        replay.all()
    except Violation as violation:
        print(f"VIOLATION: {violation}", flush=True)
        verdict = "violated"
    print(json.dumps(dict(replay.tally, stages=replay.stages, seed=replay.arguments.seed, verdict=verdict)), flush=True)
    sys.exit(0 if verdict == "whole" else 1)


if __name__ == "__main__":
    main()
