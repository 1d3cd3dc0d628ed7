"""What the comparisons with SPDK share (net-peers.py, peers.py): programs, the machine, ratios, and saved documents."""

import json
import os
import re
import statistics
import subprocess
import sys

# Seconds for a program to end after SIGTERM.
GRACE = 10
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def memory():
    """How SPDK's programs get their memory."""
    with open("/proc/sys/vm/nr_hugepages") as pages:
        return [] if int(pages.read()) else ["--no-huge"]


def built(*examples):
    """The folder of our programs, which are built if they are not."""
    for wanted in ([], *(["--example", example] for example in examples)):
        command = ["cargo", "build", "--quiet", "--release", "-p", "strake-bench", *wanted]
        if subprocess.run(command, cwd=ROOT).returncode:
            sys.exit(f"`{' '.join(command)}` failed in {ROOT}: correct the error above, or name the folder of built "
                     "programs with --programs")
    return f"{os.environ.get('CARGO_TARGET_DIR', f'{ROOT}/target')}/release"


def finish(process):
    """Ends a program that this one started. SPDK returns its huge pages only if it ends by itself."""
    if process.poll() is None:
        process.terminate()
        try:
            process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def output(command, seconds):
    """The return code of a program and what it printed: standard output, standard error. Ends it if this program ends,
    or, with subprocess.TimeoutExpired, after `seconds`."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        printed = process.communicate(timeout=seconds)
        return process.returncode, *printed
    finally:
        finish(process)


def version(program, seconds=30):
    """The last line that a program prints about its version."""
    try:
        _, out, err = output([program, "--version"], seconds)
    except OSError as error:
        sys.exit(f"cannot start `{program} --version` ({error.strerror}): see whether it was built for this machine")
    except subprocess.TimeoutExpired:
        sys.exit(f"`{program} --version` did not end within {seconds} s: see whether it is the right program")
    lines = (out + err).strip().splitlines()
    return lines[-1] if lines else f"{os.path.basename(program)} of an unknown version"


def first_line(path, pattern=".*"):
    with open(path) as file:
        found = re.search(pattern, file.read())
    return found[0].strip() if found else "unknown"


def machine():
    """What the numbers depend on."""
    return {"cpu": first_line("/proc/cpuinfo", "(?<=model name\t: ).*"), "cpus": os.cpu_count(),
            "kernel": os.uname().release, "huge_pages": not memory()}


class Meanwhile:
    """What disturbs a run (/proc/stat, proc(5)): other guests of the hypervisor, and other processes here."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        """Ticks of all CPUs: stolen by other guests, all, busy, and those of this process and of its ended children."""
        spent = [int(word) for word in first_line("/proc/stat").split()[1:9]]
        own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
        return spent[7], sum(spent), sum(spent) - spent[3] - spent[4] - spent[7], own

    def since(self):
        """The percentage of the time that was stolen, and the CPUs that other processes used on average."""
        stolen, spent, busy, own = (now - then for now, then in zip(self.now(), self.start))
        spent = max(spent, 1)
        return round(100 * stolen / spent, 1), round(max(busy - own, 0) / spent * os.cpu_count(), 2)


def ratios(ours, theirs):
    """Ratios of the samples of each round: the median, the least and the greatest."""
    found = [a / b for a, b in zip(ours, theirs)]
    return statistics.median(found), min(found), max(found)


def times(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"


def saved(name):
    """The document that --save kept as NAME.json."""
    try:
        with open(f"{name}.json") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"{name}.json is no saved document ({error}): measure one with --save {name}")


def save(name, document, page):
    """Keeps the document in NAME.json, and its page in NAME.md."""
    try:
        with open(f"{name}.json", "w") as file:
            file.write(json.dumps(document, indent=1) + "\n")
        with open(f"{name}.md", "w") as file:
            file.write(page)
    except OSError as error:
        sys.exit(f"the document is not saved ({error}): name a place in a folder that exists with --save")
