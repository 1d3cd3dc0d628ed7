#!/usr/bin/env python3
"""Compares our NVMe/TCP target with SPDK's, in turns, under SPDK's own host and under ours; prints one JSON document.

Usage: scripts/net-peers.py --spdk DIR [--programs DIR] [--rounds N] [--seconds N] [--filter TEXT]
                            [--save NAME] [--note TEXT]...
       scripts/net-peers.py --page NAME

DIR is an SPDK tree that somebody has built: build/bin/nvmf_tgt and build/bin/spdk_nvme_perf. The targets run on CPU 1,
the hosts on CPU 0, over loopback; each target has a null drive of 64 GiB and one in memory of 256 MiB, digests are off.
A target that polls stands still (SIGSTOP) while the other is measured. Nothing else should run meanwhile: of a busy
machine only the ratios say something. SPDK needs memory in huge pages: `echo 700 >/proc/sys/vm/nr_hugepages`
beforehand; without any it runs with --no-huge, which the document says. --save keeps the document in NAME.json and a
page in NAME.md, with what somebody wants to say of the run (--note); --page writes the page again.
--programs has `strake` and `examples/net_target`; otherwise cargo builds them.
"""

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from peers_common import Meanwhile, built, first_line, machine, memory, ratios, save, saved, times, version

NQN = "nqn.2016-06.io.spdk:peer"
DRIVES = ("null", "ram")
ROWS = [(f"{rw} 4KiB qd{depth}", rw, 4096, depth) for rw in ("randread", "randwrite") for depth in (1, 32, 128)]
ROWS += [(f"{rw} 128KiB qd32", rw, 128 << 10, 32) for rw in ("read", "write")]


def configuration(port):
    """What nvmf_tgt is to serve: defaults wherever there are some."""
    address = {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": str(port)}

    def call(method, **parameters):
        return {"method": method, "params": parameters}

    bdev = [call("bdev_null_create", name="null", num_blocks=(64 << 30) // 4096, block_size=4096),
            call("bdev_malloc_create", name="ram", num_blocks=(256 << 20) // 4096, block_size=4096)]
    nvmf = [call("nvmf_create_transport", trtype="TCP"),
            call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True, serial_number="PEER")]
    nvmf += [call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": name, "nsid": number})
             for number, name in enumerate(DRIVES, 1)]
    nvmf += [call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=address)]
    return {"subsystems": [{"subsystem": "bdev", "config": bdev}, {"subsystem": "nvmf", "config": nvmf}]}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Theirs:
    """SPDK's target."""

    def __init__(self, folder, work):
        self.port = free_port()
        path = f"{work}/target.json"
        with open(path, "w") as file:
            json.dump(configuration(self.port), file)
        command = [f"{folder}/nvmf_tgt", "-m", "0x2", "-s", "700", "-u", "-r", f"{work}/rpc.sock", "--json", path]
        self.log = open(f"{work}/nvmf_tgt.log", "w")
        self.process = subprocess.Popen(command + memory(), stdout=self.log, stderr=self.log)
        end = time.monotonic() + 60
        while not answers(self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                with open(self.log.name) as log:
                    sys.exit(f"nvmf_tgt does not serve:\n{log.read()}")
            time.sleep(0.1)
        self.rest()

    def place(self, drive):
        return self.port, NQN, DRIVES.index(drive) + 1, None

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def rest(self):
        self.process.send_signal(signal.SIGSTOP)

    def end(self):
        self.wake()
        self.process.terminate()
        self.process.wait()


class Ours:
    """Our target: the one of `strake bench run net`. It sleeps while nobody asks for anything."""

    def __init__(self, folder):
        program = [f"{folder}/examples/net_target"]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.told = json.loads(self.process.stdout.readline())

    def place(self, drive):
        port, nqn = re.fullmatch(r"nvme-tcp://127.0.0.1:(\d+)/(.*)", self.told[drive]).groups()
        return int(port), nqn, 1, self.told["host"]

    def wake(self):
        pass

    rest = wake

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def spdk_host(folder, target, drive, row, seconds):
    """What SPDK's host gets from a target: requests a second, or GB/s of large ones."""
    _, rw, size, depth = row
    port, nqn, nsid, host = target.place(drive)
    place = f"trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{port} subnqn:{nqn} ns:{nsid}"
    place += f" hostnqn:{host}" if host else ""
    command = [f"{folder}/spdk_nvme_perf", "-c", "0x1", "-q", str(depth), "-o", str(size), "-w", rw, "-t", str(seconds),
               "-s", "256", "-r", place]
    target.wake()
    ran = subprocess.run(command + memory(), capture_output=True, text=True)
    target.rest()
    total = re.search(r"^Total\s*:\s*([0-9.]+)", ran.stdout, re.MULTILINE)
    if ran.returncode or not total:
        sys.exit(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    rate = float(total[1])
    return rate * size / 1e9 if size > 4096 else rate


def under_their_host(folder, ours, theirs, options):
    """Every row once in each round, ours and theirs one after the other, and the other one first in the next round."""
    cases = [(drive, row) for drive in DRIVES for row in ROWS if options.filter in f"{row[0]} {drive}"]
    found = {(drive, row[0]): ([], []) for drive, row in cases}
    for turn in range(options.rounds):
        for drive, row in cases:
            pair = list(zip((ours, theirs), found[drive, row[0]]))
            for target, samples in pair[::-1] if turn % 2 else pair:
                samples.append(spdk_host(folder, target, drive, row, options.seconds))
            print(f"round {turn + 1}: {row[0]} {drive}: {[samples[-1] for _, samples in pair]}", file=sys.stderr)
    for (drive, name), (our, their) in found.items():
        ratio, ratio_min, ratio_max = ratios(our, their)
        yield {"host": "spdk_nvme_perf", "case": f"{name} {drive}", "unit": "GB/s" if "128KiB" in name else "1/s",
               "strake": statistics.median(our), "peer": statistics.median(their),
               "ratio": ratio, "ratio_min": ratio_min, "ratio_max": ratio_max,
               "samples": {"strake": our, "peer": their}}


def under_our_host(folder, theirs, options):
    """The same by `strake bench run net`, which serves its own target."""
    command = [f"{folder}/strake-bench", "run", "net", "--output", "json", "--repeats", str(options.rounds),
               "--milliseconds", str(1000 * options.seconds), "--filter", options.filter or "cores=1",
               "--peer", f"nvme-tcp://127.0.0.1:{theirs.port}/{NQN}", "--peer-process", str(theirs.process.pid)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"strake bench: {ran.stderr}")
    report = json.loads(ran.stdout)
    rows = {row["case"]: row for row in report["rows"]}
    for case, row in rows.items():
        times = rows.get(f"{case} times the peer")
        if times:
            yield {"host": "strake", "case": case.removeprefix("nvme-tcp ").removesuffix(" cores=1"),
                   "unit": row["unit"], "strake": row["median"], "peer": rows[f"{case} peer"]["median"],
                   "ratio": times["median"], "ratio_min": times["min"], "ratio_max": times["max"],
                   "note": times["note"]}


def measured(options):
    folder, programs = f"{options.spdk}/build/bin", options.programs or built("net_target")
    meanwhile = Meanwhile()
    with tempfile.TemporaryDirectory() as work:
        theirs = Theirs(folder, work)
        try:
            ours = Ours(programs)
            rows = list(under_their_host(folder, ours, theirs, options))
            ours.end()
            rows += under_our_host(programs, theirs, options)
        finally:
            theirs.end()
    about = {**machine(), "congestion_control": first_line("/proc/sys/net/ipv4/tcp_congestion_control")}
    return {"peer": version(f"{folder}/nvmf_tgt"), "machine": about, "stolen_percent": meanwhile.since()[0],
            "rounds": options.rounds, "seconds": options.seconds, "notes": options.note, "rows": rows}


def number(value, unit):
    if value is None:
        return "-"
    return f"{value:.2f} GB/s" if unit == "GB/s" else f"{value / 1e3:.1f} k/s"


def page(document):
    """The document for people."""
    about = document["machine"]
    lines = ["# Our NVMe/TCP target and SPDK's, side by side", "",
             "Written by `scripts/net-peers.py`; do not edit.", "",
             f"- Beside ours: {document['peer']}, built outside of the repository",
             f"- CPU: {about['cpu']}, {about['cpus']} CPUs, Linux {about['kernel']}, TCP's congestion control is "
             f"{about['congestion_control']}",
             f"- CPU time that the hypervisor gave to other guests meanwhile: {document['stolen_percent']} %",
             "- A core for the target and one for the host, over loopback, one connection, no digests, no TLS, "
             "no array",
             f"- Medians of {document['rounds']} rounds of {document['seconds']} s; in each both targets took turns, "
             "and a ratio is the median of those of the rounds", *(f"- {note}" for note in document["notes"]), "",
             "| case | host | our target | SPDK's | ratio | from | to |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in document["rows"]:
        three = " | ".join(times(row[name]) for name in ("ratio", "ratio_min", "ratio_max"))
        ours, theirs = (number(row[name], row["unit"]) for name in ("strake", "peer"))
        lines.append(f"| {row['case']} | {row['host']} | {ours} | {theirs} | {three} |")
    return "\n".join([*lines, "", *verdict(document["rows"]), ""])


def verdict(rows):
    """What the rows say of the goal, which is to be as fast in each of them (G15)."""
    def those(is_so):
        return [f"{row['case']} under {row['host']} ({times(row['ratio'])})" for row in rows if is_so(row)]

    missed = those(lambda row: row["ratio"] is None or row["ratio"] < 1)
    sure = [row for row in rows if row["ratio"] is not None and not row["ratio_min"] < 1 <= row["ratio_max"]]
    yield (f"The goal is a ratio of 1 or more in every row (G15). Of {len(rows)} medians {len(rows) - len(missed)} "
           f"are; in {len(sure)} rows all rounds are on one side of 1, in the others they are on both.")
    if missed:
        yield f"It is **not reached** in: {', '.join(missed)}."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spdk")
    parser.add_argument("--programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--filter", default="")
    parser.add_argument("--save")
    parser.add_argument("--note", action="append", default=[])
    parser.add_argument("--page")
    options = parser.parse_args()
    if not options.spdk and not options.page:
        parser.error("name SPDK's folder with --spdk, or a saved document with --page")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    document = saved(options.page) if options.page else measured(options)
    if not options.page:
        print(json.dumps(document, indent=1))
    name = options.page or options.save
    if name:
        save(name, document, page(document))


if __name__ == "__main__":
    main()
