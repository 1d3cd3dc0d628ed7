#!/usr/bin/env python3
"""An OpenTelemetry collector for one script, and checks of what strake trace writes.

    serve FILE [MODE [PORT]]
                        prints its port, and appends each request to FILE: a line of JSON with path, type and body.
                        MODE: ok (empty answer), reject (partial success), fail (status 503)
    spans FILE          checks every request of FILE against OTLP (JSON encoding), and prints the number of spans of
                        requests and the number of their stages
    timeline FILE       checks the events of FILE (Trace Event Format), and prints the number of requests
"""
import http.server
import json
import re
import sys


def serve(path, mode, port):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            with open(path, "a", encoding="utf-8") as out:
                line = {"path": self.path, "type": self.headers["content-type"], "body": body}
                out.write(json.dumps(line) + "\n")
            answer = {"reject": b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}'}.get(mode, b"{}")
            self.send_response(503 if mode == "fail" else 200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def attributes(of):
    return {a["key"]: next(iter(a["value"].values())) for a in of}


def check_spans(path):
    requests = stages = 0
    seen = set()
    for line in open(path, encoding="utf-8"):
        line = json.loads(line)
        assert line["path"] == "/v1/traces" and line["type"] == "application/json", line["path"]
        for resource in json.loads(line["body"])["resourceSpans"]:
            about = attributes(resource["resource"]["attributes"])
            assert about["service.name"] == "strake" and about["strake.array"] == "tank", about
            parents = {}
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and int(span["traceId"], 16), span
                    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and int(span["spanId"], 16), span
                    name = (span["traceId"], span["spanId"])
                    assert name not in seen, f"span {name} was sent twice"
                    seen.add(name)
                    begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                    assert 0 < begin <= end, span
                    parent = span.get("parentSpanId")
                    if parent is None:
                        requests += 1
                        parents[name] = (begin, end)
                        assert span["name"] in ("read", "write", "write_zeroes", "deallocate", "flush"), span
                        continue
                    stages += 1
                    first, last = parents[(span["traceId"], parent)]
                    assert first <= begin and end <= last, f"{span} is not within its request"
    print(requests, stages)


def check_timeline(path):
    events = json.load(open(path, encoding="utf-8"))["traceEvents"]
    open_events, requests = {}, 0
    for event in events:
        if event["ph"] == "M":
            continue
        # The open events of a request are a stack.
        stack = open_events.setdefault((event["cat"], event["id"]), [])
        if event["ph"] == "b":
            requests += "offset" in event["args"]
            assert not stack or stack[-1][1] <= event["ts"], event
            stack.append((event["name"], event["ts"]))
        else:
            assert event["ph"] == "e", event
            name, begin = stack.pop()
            assert name == event["name"] and begin <= event["ts"], event
    assert not any(open_events.values()), "an event does not end"
    print(requests)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", path]:
            serve(path, "ok", 0)
        case ["serve", path, mode]:
            serve(path, mode, 0)
        case ["serve", path, mode, port]:
            serve(path, mode, int(port))
        case ["spans", path]:
            check_spans(path)
        case ["timeline", path]:
            check_timeline(path)
        case _:
            sys.exit(__doc__)
