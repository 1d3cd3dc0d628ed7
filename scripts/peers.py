#!/usr/bin/env python3
"""Compares our arrays with SPDK's under bdevperf, in turns, on null drives; prints a table.

Usage: scripts/peers.py --spdk DIR [--programs DIR] [--rounds N] [--seconds N] [--filter TEXT] [--json]
                        [--limit N] [--save [NAME]] [--note TEXT]...
       scripts/peers.py --page NAME

DIR is a built SPDK tree with build/examples/bdevperf (`./configure --with-raid5f`). Every round measures each row once
with SPDK and once with `strake bench run`; the next round starts with the other program. All loads run on CPU 0, and
those of rows with two cores on CPUs 0 and 1. Nothing else should run meanwhile: on a busy machine, only the ratios can
be used. bdevperf takes 512 MiB of huge pages: `sysctl vm.nr_hugepages=300` reserves them. If none are reserved, it runs
with --no-huge, and the document states this. --json prints one JSON document instead of the table. --save also writes
the document to NAME.json and the page to NAME.md (default: docs/benchmarks/peers), with every remark on the run
(--note); --page writes the page again. --limit is the number of seconds after which a program that has not ended is
ended (default: 120 and ten times --seconds). --programs is a folder with `strake-bench`; otherwise cargo builds it.
"""

import argparse
import datetime
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

sys.dont_write_bytecode = True
from peers_common import ROOT, Meanwhile, built, machine, memory, output, ratios, save, saved, version

PAGE = f"{ROOT}/docs/benchmarks/peers"
MEMORY_MIB = 512
STRIP_KIB = 128
STRIPE = 7 * STRIP_KIB << 10
# CPUs that other processes may use on average in a run whose numbers are published.
QUIET = 0.3


@dataclass(frozen=True)
class Row:
    """A row of `strake bench run`, the same work of bdevperf, and what is to be reached."""

    goal: str
    ours: str
    level: str | None
    drives: int
    rw: str
    size: int
    depth: int
    unit: str
    # The least ratio of ours to SPDK's; for scaling, the least of ours.
    least: float | None

    def theirs(self):
        """The name of SPDK's side."""
        shape = {None: "raw", "raid5f": f"raid5f {self.drives - 1}+1"}.get(self.level, f"{self.level} x{self.drives}")
        work = f"{shape} {self.rw} {self.size >> 10}KiB qd{self.depth} null"
        return f"{work} cores=2 beside 1" if self.unit == "x" else f"{work} cores=1"

    def cores(self):
        return 2 if self.unit == "x" else 1


def reads(goal, ours, level, drives, unit, least):
    cores = "cores=2 beside 1" if unit == "x" else "cores=1"
    return Row(goal, f"{ours} randread 4KiB qd128 null {cores}", level, drives, "randread", 4096, 128, unit, least)


ROWS = [reads("G1", "raw", None, 1, "1/s", None),
        reads("G1", "raid0 x8", "raid0", 8, "1/s", 3),
        reads("G1", "raid6 6+2", "raid5f", 8, "1/s", 3),
        Row("G3", "raid1 x2 randwrite 4KiB qd128 null cores=1", "raid1", 2, "randwrite", 4096, 128, "1/s", 2.5),
        *(Row("G4", f"raid5 7+1 write 896KiB qd{depth} null cores=1", "raid5f", 8, "write", STRIPE, depth, "GB/s", 1.2)
          for depth in (4, 32)),
        reads("G6", "raid0 x8", "raid0", 8, "x", 1.9),
        reads("G6", "raid6 6+2", "raid5f", 8, "x", 1.9)]

DIFFERENCES = [
    "Both null drives have 64 GiB and blocks of 4 KiB, complete a request in a later turn of the loop, and move no "
    "data. Ours are null drives of this repository, SPDK's are of its module bdev_null.",
    "The loads differ: ours is a poller in the loop of the data core, SPDK's is bdevperf. Each includes its own cost; "
    "the row `raw` shows this cost together with that of the null drive.",
    "In the rows of reads, RAID 6 6+2 stands beside raid5f 7+1, because SPDK has no second parity. Reads of a healthy "
    "array touch no parity.",
    "Strips have 128 KiB in all striped arrays. raid1 of SPDK has no strips.",
    "Our arrays have labels, and a write marks its region in the write-intent bitmap before the data. SPDK's arrays "
    "have no superblock and no protection of parity or copies against a crash.",
    "Our samples follow 100 ms of warm-up. The samples of bdevperf include the start of its load.",
    "On two cores, both cores of ours read everywhere at random; in bdevperf (-C), each core reads its half.",
    "If huge pages are reserved, both programs take their buffers from them. Otherwise ours use transparent huge "
    "pages, and bdevperf uses the pages that the kernel gives to --no-huge.",
]


def configuration(row):
    """The drives and the array of bdevperf: defaults wherever there are some."""
    names = [f"null{number}" for number in range(row.drives)]
    calls = [("bdev_null_create", {"name": name, "num_blocks": (64 << 30) // 4096, "block_size": 4096})
             for name in names]
    if row.level:
        strip = {} if row.level == "raid1" else {"strip_size_kb": STRIP_KIB}
        calls.append(("bdev_raid_create", {"name": "array", "raid_level": row.level, "base_bdevs": names, **strip}))
    config = [{"method": method, "params": parameters} for method, parameters in calls]
    return {"subsystems": [{"subsystem": "bdev", "config": config}]}


def ended(command, options, hint):
    """What a program printed; a failure ends this program with the reason."""
    shown = " ".join(command)
    try:
        code, out, err = output(command, options.limit or 10 * options.seconds + 120)
    except OSError as error:
        sys.exit(f"cannot start `{shown}` ({error.strerror}): {hint}")
    except subprocess.TimeoutExpired as error:
        sys.exit(f"`{shown}` did not end within {error.timeout:.0f} s: try it alone, without other load")
    if code:
        sys.exit(f"`{shown}` ended with {code}: {hint}. It printed:\n{out}{err}")
    return out


def bdevperf(program, row, cores, options):
    """What SPDK reaches: requests a second, or GB/s of large ones."""
    hint = "see whether the folder of --spdk is a complete build for this machine"
    if row.level == "raid5f":
        hint += ". SPDK has raid5f only if it was built after `./configure --with-raid5f`"
    check_memory()
    with tempfile.TemporaryDirectory() as work:
        path = f"{work}/drives.json"
        with open(path, "w") as file:
            json.dump(configuration(row), file)
        command = [program, "-m", "0x3" if cores == 2 else "0x1", "-s", str(MEMORY_MIB), "-u", "-r", f"{work}/rpc.sock",
                   "--json", path, "-T", "array" if row.level else "null0", "-w", row.rw, "-o", str(row.size),
                   "-q", str(row.depth), "-t", str(options.seconds), *(["-C"] if cores == 2 else []), *memory()]
        printed = ended(command, options, hint)
    # The columns are requests per second, MiB per second, and failed requests per second.
    total = re.search(r"^\s*Total\s*:\s*([0-9.]+)\s+[0-9.]+\s+([0-9.]+)", printed, re.MULTILINE)
    if not total or not float(total[1]) or float(total[2]):
        sys.exit(f"`{' '.join(command)}` printed no total without failed requests: {hint}. It printed:\n{printed}")
    rate = float(total[1])
    return rate * row.size / 1e9 if row.unit == "GB/s" else rate


def theirs(program, row, options):
    """A sample of SPDK: for scaling, two cores beside one."""
    if row.unit == "x":
        one, two = (bdevperf(program, row, cores, options) for cores in (1, 2))
        return two / one
    return bdevperf(program, row, 1, options)


def ours(program, row, options, notes):
    """A sample of `strake bench run`, and what it says about all of its rows."""
    command = [program, "run", row.goal, "--filter", row.ours, "--repeats", "1",
               "--milliseconds", str(1000 * options.seconds), "--output", "json"]
    hint = "build strake-bench of this repository, or leave --programs out"
    try:
        report = json.loads(ended(command, options, hint))
        found = {found["case"]: found for found in report["rows"]}[row.ours]
        notes.update((note, None) for note in report["notes"] if not note.startswith("The hypervisor took"))
        value, reason = found["median"], found["note"]
    except (ValueError, KeyError, TypeError):
        sys.exit(f"`{' '.join(command)}` printed no row {row.ours!r}: {hint}")
    if not value:
        sys.exit(f"`{' '.join(command)}` did not measure {row.ours!r}: {reason}")
    return value


def spread(samples):
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples), "samples": samples}


def result(row, our, their):
    """A row of the document."""
    ratio, least, greatest = ratios(our, their)
    reached = statistics.median(our) if row.unit == "x" else ratio
    return {"goal": row.goal, "case": row.ours, "peer_case": row.theirs(), "unit": row.unit,
            "strake": spread(our), "peer": spread(their),
            "ratio": {"median": ratio, "min": least, "max": greatest},
            "goal_of": "strake" if row.unit == "x" else "ratio", "goal_least": row.least,
            "meets": None if row.least is None else reached >= row.least}


def chosen(options):
    """The rows to measure."""
    cpus = os.sched_getaffinity(0)
    if 0 not in cpus:
        sys.exit("this process may not use CPU 0, where all loads run: start it without taskset or cpuset")
    rows = [row for row in ROWS if options.filter in f"{row.goal} {row.ours} {row.theirs()}"]
    if not rows:
        sys.exit(f"no row has {options.filter!r} in its name. The rows are:\n" + "\n".join(row.ours for row in ROWS))
    kept = [row for row in rows if row.cores() == 1 or 1 in cpus]
    if not kept:
        sys.exit("these rows need CPUs 0 and 1, and this machine has one CPU: choose other rows with --filter")
    return kept, ([] if kept == rows else ["The rows of G6 are left out: they need CPUs 0 and 1."])


def check_memory():
    """Ends this program if SPDK would find too few huge pages. Other programs may take some during the run."""
    if memory():
        return
    with open("/proc/meminfo") as file:
        found = {name: int(number) for name, number in re.findall(r"^(\w+):\s+(\d+)", file.read(), re.MULTILINE)}
    free = found["HugePages_Free"] * found["Hugepagesize"] >> 10
    if free < MEMORY_MIB:
        need = found["HugePages_Total"] + -(-(MEMORY_MIB - free << 10) // found["Hugepagesize"])
        sys.exit(f"bdevperf needs {MEMORY_MIB} MiB of free huge pages, and {free} MiB are free: end what uses them, or "
                 f"as root, `sysctl vm.nr_hugepages={need}`, or 0 to measure without huge pages")
    with open("/proc/mounts") as file:
        if not any(mount.split()[2] == "hugetlbfs" for mount in file):
            sys.exit("huge pages are reserved, but no hugetlbfs is mounted, which bdevperf needs: as root, "
                     "`mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages`")


def measured(options):
    program = f"{options.spdk}/build/examples/bdevperf"
    if not os.access(program, os.X_OK):
        sys.exit(f"there is no program {program}: name a built SPDK tree with --spdk; in the tree, "
                 "`./configure --with-raid5f && make` builds bdevperf")
    rows, left_out = chosen(options)
    if memory():
        print("no huge pages are reserved: bdevperf runs with --no-huge; `sysctl vm.nr_hugepages=300` as root reserves "
              "them", file=sys.stderr)
    check_memory()
    bench = f"{options.programs or built()}/strake-bench"
    # Before the measurement, so that a wrong program costs no time.
    versions = {"peer": version(program, options.limit or 30), "strake": source(bench, options)}
    found, notes, meanwhile = {row: ([], []) for row in rows}, {}, Meanwhile()
    for turn in range(options.rounds):
        for row in rows:
            pair = [(found[row][1], lambda: theirs(program, row, options)),
                    (found[row][0], lambda: ours(bench, row, options, notes))]
            for samples, sample in pair[::-1] if turn % 2 else pair:
                samples.append(sample())
            our, their = (samples[-1] for samples in found[row])
            print(f"round {turn + 1}: {row.ours}: {our:.4g} and {their:.4g} {row.unit}, {our / their:.2f} times",
                  file=sys.stderr)
    stolen, others = meanwhile.since()
    return {**versions, "date": str(datetime.date.today()), "machine": machine(),
            "others_cpus": others, "stolen_percent": stolen, "rounds": options.rounds,
            "seconds": options.seconds, "notes": options.note + left_out, "strake_notes": list(notes),
            "differences": DIFFERENCES, "rows": [result(row, *found[row]) for row in rows]}


def source(bench, options):
    """The version of our program, with the commit if this program built it."""
    name = version(bench)
    if options.programs:
        return name
    git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return f"{name} ({git.stdout.strip()})" if git.stdout.strip() else name


def three(spread, unit):
    """Median, least and greatest of samples."""
    scale, digits, name = {"1/s": (1e6, 2, " M/s"), "GB/s": (1, 1, " GB/s"), "x": (1, 2, "")}[unit]
    median, least, greatest = (f"{spread[key] / scale:.{digits}f}" for key in ("median", "min", "max"))
    return f"{median}{name} ({least} to {greatest})"


def page(document):
    """The document for people."""
    about = document["machine"]
    huge = "uses huge pages" if about["huge_pages"] else "runs without huge pages (--no-huge)"
    notes = [*document["notes"], *document["strake_notes"]]
    load = f"{document['others_cpus']:.2f} CPUs used by other processes"
    lines = ["# Our arrays and SPDK's, side by side", "", "Written by `scripts/peers.py`; do not edit.", "",
             f"- Measured on {document['date']}: {document['strake']}, beside {document['peer']}, which was built "
             "outside of the repository",
             f"- CPU: {about['cpu']}, {about['cpus']} CPUs, Linux {about['kernel']}; bdevperf {huge}",
             f"- Other load: {load}, {document['stolen_percent']} % of the CPU time taken by other guests of the "
             f"hypervisor{busy(document)}",
             f"- {document['rounds']} rounds of {document['seconds']} s per sample. In each round, both programs take "
             "turns, and a ratio is ours divided by SPDK's of the same round. Cells are median (least to greatest)",
             *(f"- {note}" for note in notes), "",
             "| goal | our case | ours | SPDK's case | SPDK's | ratio | to reach | reached |",
             "|---|---|---:|---|---:|---:|---:|---|", *(line(row) for row in document["rows"]), "",
             verdict(document["rows"]), "", "## Differences in what is measured", "",
             *(f"- {difference}" for difference in document["differences"])]
    return "\n".join([*lines, ""])


def busy(document):
    if document["others_cpus"] < QUIET:
        return ""
    return ". **The machine was busy: only the ratios can be used**"


def line(row):
    """A row of the table."""
    least = row["goal_least"]
    goal = "-" if least is None else f"{least}x SPDK" if row["goal_of"] == "ratio" else f"ours {least}"
    meets = {None: "-", True: "yes", False: "**no**"}[row["meets"]]
    cells = [row["goal"], row["case"], three(row["strake"], row["unit"]), row["peer_case"],
             three(row["peer"], row["unit"]), three(row["ratio"], "x"), goal, meets]
    return f"| {' | '.join(cells)} |"


def verdict(rows):
    """How many rows reach their goals."""
    goals = [row["meets"] for row in rows if row["meets"] is not None]
    return f"Goals reached by the median: {sum(goals)} of {len(goals)}."


def count(text):
    """A number of rounds, or of seconds: strake-bench takes samples of at most a minute."""
    if not text.isdecimal() or not 1 <= int(text) <= 60:
        raise argparse.ArgumentTypeError("write a number from 1 to 60")
    return int(text)


def interrupted(*_):
    """Ends this program. A second signal must not prevent it from ending bdevperf."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    sys.exit("ended by a signal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spdk", metavar="DIR")
    parser.add_argument("--programs", metavar="DIR")
    parser.add_argument("--rounds", type=count, default=5, metavar="N")
    parser.add_argument("--seconds", type=count, default=1, metavar="N")
    parser.add_argument("--limit", type=count, metavar="N")
    parser.add_argument("--filter", default="", metavar="TEXT")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", nargs="?", const=PAGE, metavar="NAME")
    parser.add_argument("--note", action="append", default=[], metavar="TEXT")
    parser.add_argument("--page", metavar="NAME")
    options = parser.parse_args()
    if not options.spdk and not options.page:
        parser.error("name SPDK's folder with --spdk, or a saved document with --page")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupted)
    document = saved(options.page) if options.page else measured(options)
    if not options.page:
        print(json.dumps(document, indent=1) if options.json else page(document))
    name = options.page or options.save
    if name:
        save(name, document, page(document))


if __name__ == "__main__":
    main()
