#!/usr/bin/env python3
"""A SQLite database whose owner writes down elsewhere what was acknowledged.

Each transaction adds a row whose content follows from its number, and moves the balance of the ledger. The number is
written to another place only after COMMIT returned: whatever is there must be in the database for ever after.
"""

import argparse
import os
import random
import sqlite3
import sys

LINE = 16


def body(number):
    """What row `number` holds: 100 to 9000 bytes."""
    rng = random.Random(number)
    return rng.randbytes(rng.randint(100, 9000))


def last_acknowledged(path):
    """The last number in the file that `write` on the command line appends to."""
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as file:
        lines = os.fstat(file.fileno()).st_size // LINE
        return int(os.pread(file.fileno(), LINE, (lines - 1) * LINE)) if lines else 0


def open_ledger(path, journal):
    """The database at `path`, every COMMIT of which is to be stable when it returns.

    That takes EXTRA: with FULL a rollback journal may come back after a power loss, and undo the last transaction
    (sqlite.org, PRAGMA synchronous).
    """
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA journal_mode={journal}")
    database.execute("PRAGMA synchronous=EXTRA")
    database.execute("CREATE TABLE IF NOT EXISTS entry (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    database.execute("CREATE TABLE IF NOT EXISTS balance (one INTEGER PRIMARY KEY, number INTEGER, bytes INTEGER)")
    database.execute("INSERT OR IGNORE INTO balance VALUES (1, 0, 0)")
    return database


def write(path, journal, acknowledge, count=None):
    """Transactions until `acknowledge(number)` says that it is enough, or `count` were made."""
    database = open_ledger(path, journal)
    number = database.execute("SELECT number FROM balance").fetchone()[0]
    end = None if count is None else number + count
    while number != end:
        number += 1
        content = body(number)
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO entry VALUES (?, ?)", (number, content))
        database.execute("UPDATE balance SET number = ?, bytes = bytes + ?", (number, len(content)))
        database.execute("COMMIT")
        if acknowledge(number):
            break
    database.close()
    return number


def verify(path, acknowledged):
    """What is wrong with the ledger, of which `acknowledged` rows must be there; empty when nothing is."""
    if not os.path.exists(path):
        return [] if acknowledged == 0 else [f"{acknowledged} transactions were acknowledged, and there is no database"]
    wrong = []
    database = sqlite3.connect(path, isolation_level=None)
    try:
        said = [row[0] for row in database.execute("PRAGMA integrity_check")]
        if said != ["ok"]:
            wrong.append(f"integrity_check: {said[:5]}")
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'balance'").fetchone():
            return wrong + ([f"{acknowledged} were acknowledged, and no table is there"] if acknowledged else [])
        row = database.execute("SELECT number, bytes FROM balance").fetchone() or (0, 0)
        if not acknowledged <= row[0] <= acknowledged + 1:
            wrong.append(f"{acknowledged} were acknowledged, {row[0]} are there")
        total, following = 0, 1
        for number, content in database.execute("SELECT number, body FROM entry ORDER BY number"):
            if number != following or content != body(number):
                wrong.append(f"row {number} is wrong where {following} was expected")
                break
            total, following = total + len(content), following + 1
        if (following - 1, total) != tuple(row):
            wrong.append(f"rows add up to {(following - 1, total)}, the balance says {tuple(row)}")
    except sqlite3.Error as error:
        wrong.append(f"SQLite: {error}")
    finally:
        database.close()
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["write", "verify"])
    parser.add_argument("--database", required=True)
    parser.add_argument("--journal", default="WAL")
    parser.add_argument("--acknowledged", help="write: the file for numbers; verify: the number", required=True)
    parser.add_argument("--count", type=int)
    parser.add_argument("--stop", help="a file whose appearance ends the writing")
    arguments = parser.parse_args()
    if arguments.command == "verify":
        wrong = verify(arguments.database, int(arguments.acknowledged))
        print("\n".join(wrong) or "ok")
        sys.exit(1 if wrong else 0)
    place = os.open(arguments.acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(number):
        os.write(place, f"{number:<{LINE - 1}}\n".encode())
        return arguments.stop and os.path.exists(arguments.stop)

    try:
        write(arguments.database, arguments.journal, acknowledge, arguments.count)
    except (sqlite3.Error, OSError) as error:
        print(f"the file system refused: {error}", file=sys.stderr)
        sys.exit(5)


if __name__ == "__main__":
    main()
