"""The toy broker: one journal file, one JSON object a line over TCP. An answer means that the journal is on disk."""

import hmac
import http.server
import json
import os
import pathlib
import socketserver
import sys
import threading


class Store:
    """Queues in memory, made anew from the journal. Every method holds the lock."""

    def __init__(self, path):
        self.lock = threading.Condition()
        self.waiting, self.taken, self.seen, self.added, self.number = {}, {}, set(), {}, 0
        self.journal = pathlib.Path(path).open("a+")  # noqa: SIM115
        self.journal.seek(0)
        for line in self.journal:
            if line.endswith("\n"):  # a line that was cut off was never answered
                self.apply(json.loads(line), again=True)

    def apply(self, entry, again=False):
        if entry["op"] == "send":
            self.number += 1
            self.seen.add((entry["queue"], entry["message_id"]))
            self.added[entry["queue"]] = self.added.get(entry["queue"], 0) + 1
            kept = {**entry, "id": self.number, "redelivered": again}
            self.waiting.setdefault(entry["queue"], []).append(kept)
        elif entry["op"] == "ack":
            self.taken.pop(entry["id"], None)
            for queue in self.waiting.values():
                queue[:] = [kept for kept in queue if kept["id"] != entry["id"]]
        else:
            for name in entry["queues"]:
                self.waiting.pop(name, None)

    def write(self, entry):
        self.journal.write(json.dumps(entry) + "\n")
        self.journal.flush()
        os.fsync(self.journal.fileno())
        self.apply(entry)
        self.lock.notify_all()

    def answer(self, request, mine):
        with self.lock:
            if request["op"] == "send":
                if (request["queue"], request["message_id"]) in self.seen:
                    return {"duplicate": True}
                self.write(request)
            elif request["op"] == "ack":
                self.write({"op": "ack", "id": request["id"]})
                mine.discard(request["id"])
            elif request["op"] == "take":
                self.lock.wait_for(lambda: any(self.waiting.get(name) for name in request["queues"]), request["wait"])
                for name in request["queues"]:
                    if self.waiting.get(name):
                        kept = self.waiting[name].pop(0)
                        self.taken[kept["id"]] = kept
                        mine.add(kept["id"])
                        return kept
            elif request["op"] == "browse":
                return {"messages": self.waiting.get(request["queue"], [])}
            elif request["op"] == "counts":
                out = [kept["queue"] for kept in self.taken.values()]
                return {
                    "queues": {
                        name: [
                            len(self.waiting.get(name, [])) + out.count(name),
                            out.count(name),
                            self.added.get(name, 0),
                        ]
                        for name in request["queues"]
                    }
                }
            elif request["op"] == "purge":
                self.write({"op": "purge", "queues": request["queues"]})
            return {}

    def give_back(self, mine):
        with self.lock:
            for number in sorted(mine, reverse=True):
                kept = self.taken.pop(number, None)
                if kept:
                    self.waiting.setdefault(kept["queue"], []).insert(0, {**kept, "redelivered": True})
            self.lock.notify_all()


class Handler(socketserver.StreamRequestHandler):
    """One connection: its first request says the password."""

    def handle(self):
        mine, known = set(), False
        try:
            for line in self.rfile:
                request = json.loads(line)
                if request["op"] == "hello":
                    known = hmac.compare_digest(request["password"], self.server.password)
                if not known:
                    return
                answer = {"state": "active"} if request["op"] == "hello" else self.server.store.answer(request, mine)
                self.wfile.write(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass  # the client is gone
        finally:
            self.server.store.give_back(mine)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class Page(http.server.BaseHTTPRequestHandler):
    """Its metrics, for Prometheus."""

    def do_GET(self):
        with self.server.store.lock:
            lines = [f'toy_messages{{queue="{name}"}} {len(kept)}' for name, kept in self.server.store.waiting.items()]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write("".join(f"{line}\n" for line in ["# TYPE toy_messages gauge", *lines]).encode())

    def log_message(self, *_):
        pass


def main(address, port, journal, credentials, metrics_address="", metrics_port="0"):
    with Server((address, int(port)), Handler) as server:
        server.store = Store(journal)
        server.password = json.loads(pathlib.Path(credentials).read_text())["password"]
        if metrics_address:
            page = http.server.ThreadingHTTPServer((metrics_address, int(metrics_port)), Page)
            page.store = server.store
            threading.Thread(target=page.serve_forever, daemon=True).start()
        print("toy is ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
