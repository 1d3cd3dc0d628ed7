#!/usr/bin/env python3
"""Asks a Prometheus server. Used by 45-prometheus.sh.

    _prometheus.py PORT ready                 whether the server answers
    _prometheus.py PORT firing                names of firing alerts, one per line
    _prometheus.py PORT dashboard FILE [ANY]  sends every query of a dashboard, and fails if one is answered with an
                                              error, or if one without a metric of the list ANY has no result
"""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request

# Values that Grafana puts into queries.
VARIABLES = {"$array": ".*", "$__rate_interval": "1m"}


def ask(port, path, **arguments):
    """The data of an answer, or the text of its error."""
    query = urllib.parse.urlencode(arguments)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{query}", timeout=5) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        return error.read().decode()


def firing(port):
    alerts = ask(port, "alerts")["alerts"]
    return sorted({alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"})


def queries(file):
    with open(file, encoding="utf-8") as opened:
        panels = json.load(opened)["panels"]
    for panel in panels:
        for target in panel.get("targets", []):
            expr = target["expr"]
            for name, value in VARIABLES.items():
                expr = expr.replace(name, value)
            yield panel["title"], expr


def dashboard(port, file, may_be_empty):
    count = empty = 0
    for title, expr in queries(file):
        answer = ask(port, "query", query=expr)
        if not isinstance(answer, dict):
            sys.exit(f"panel {title}: {expr}: {answer}")
        count += 1
        if not answer["result"]:
            empty += 1
            if not any(name in expr for name in may_be_empty):
                sys.exit(f"panel {title}: {expr}: no result")
    print(f"{count} queries answered, {empty} of them without a series")


def main():
    port, command, *rest = sys.argv[1:]
    try:
        if command == "ready":
            ask(port, "query", query="1")
        elif command == "firing":
            print("\n".join(firing(port)))
        elif command == "dashboard":
            dashboard(port, rest[0], rest[1:])
        else:
            sys.exit(__doc__)
    except OSError as error:
        sys.exit(str(error))


main()
