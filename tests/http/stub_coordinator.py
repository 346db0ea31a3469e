"""A coordinator as the pages of the dashboard see it: documents that never change by themselves, events on demand.

    tests/http/stub_coordinator.py --jobs 200 --port 8080    # to look at the pages in a browser

Documents have the keys of coordinator/server/rows.h and history.h, and are made from a seed.
"""
import argparse
import http.server
import json
import mimetypes
import pathlib
import random
import socketserver
import threading
import time
import urllib.parse

PAGES = pathlib.Path(__file__).resolve().parents[2] / "coordinator" / "pages"
CHART = pathlib.Path("/usr/share/javascript/chart.js/chart.min.js")
# As the coordinator sends them: no script or style within the page.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                               "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
TOKEN = "right-token"
RIGHT = "Bearer " + TOKEN
TYPES = ["v100", "p100", "k80", "a100", "h200"]
USERS = ["ann", "bob", "chen", "dana", "emre"]
APPS = ["", "search", "speech", "vision"]
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
STATES = ["R"] * 8 + ["PD"] * 8 + ["S"] * 3 + ["CG", "F"]
REASONS = {
    "R": "running on v100: received 31 % of the time, target 33 %",
    "PD": "waiting: 4th in line for v100, received 12 % of its share",
    "S": "paused: its share of v100 is used up for now",
    "CG": "pausing: to stop at the next iteration boundary",
    "F": "held: its process ended 3 times in a row with exit code 1; `gavel logs 7` tells why",
    "CD": "finished",
    "CA": "cancelled",
}


def server_of(i):
    return "gpu-%03d.cluster" % (i + 1)


class Documents:
    """The answers of one coordinator."""

    def __init__(self, jobs=24, servers=6, hostile=False, elements=0, seed=1):
        self.random = random.Random(seed)
        self.hostile = hostile
        self.began = time.time() - 3 * 3600
        self.policy = "max_min_fairness_perf"
        self.nodes = [self.node(i) for i in range(servers)]
        places = [(node, one) for node in self.nodes for one in node["accelerators"] if one["state"] == "allocated"]
        self.random.shuffle(places)
        self.jobs = [self.job(i + 1, places) for i in range(jobs)]
        self.jobs += [self.element(jobs + 2 + i, jobs + 1, i, places) for i in range(elements)]
        for node, one in places:  # no job is left for them
            one.update(state="idle", utilisation_percent=0.0)
        self.answers = {}  # by path: replaces the documents below

    def node(self, i):
        kind = TYPES[i % len(TYPES)]
        size = 8 if i % 3 else 4
        down = i % 11 == 10
        rows = []
        for k in range(size):
            state = "unreachable" if down else self.random.choices(
                ["allocated", "idle", "starting", "drained", "draining", "hung", "lost"], [80, 12, 3, 2, 1, 1, 1])[0]
            rows.append({
                "type": kind, "uuid": "GPU-%08x" % self.random.getrandbits(32), "device": "cuda:%d" % k,
                "slow_down_factor": 1, "state": state, "speed": 0.81 if k == 3 and i == 1 else 1,
                "jobs": [], "kept_jobs": [], "starting_jobs": [],
                "drained": state in ("drained", "draining"), "drain_in_s": 640.0 if state == "draining" else None,
                "memory_bytes": 16 << 30, "drained_for": "", "exclusive": False, "visibility": "all",
                "utilisation_percent": None if down else float(self.random.randrange(60, 100)),
                "temperature_c": None if down else float(self.random.randrange(38, 83)),
                "uncorrectable_errors": 0, "last_xid": 79 if state == "lost" else None,
                "lost_for": "it failed; see to the device, then restart the agent of " + server_of(i)
                            if state == "lost" else ""})
        return {"server": HOSTILE if self.hostile and i == 0 else server_of(i), "state": "down" if down else "mixed",
                "parked_bytes": 3 << 30 if i % 2 else 0, "accelerators": rows}

    def job(self, i, places):
        pick = self.random
        state = STATES[pick.randrange(len(STATES))]
        size = pick.choice([1, 1, 1, 2, 4])
        held = []
        if state in ("R", "CG"):
            while places and len(held) < size:
                node, one = places.pop()
                one["jobs"] = [i]
                held.append({"server": node["server"], "type": one["type"], "uuid": one["uuid"]})
            if not held:
                state = "PD"
        total = pick.choice([0, 20000, 120000, 400000])
        target = round(pick.uniform(0.05, 1), 3)
        name = "%s_%d" % (pick.choice(["resnet50", "lstm", "transformer", "recoder", "a3c", "cyclegan"]), i)
        return {
            "id": i, "name": HOSTILE if self.hostile and i % 3 == 0 else name, "state": state, "owner": pick.choice(USERS),
            "app": HOSTILE if self.hostile and i % 5 == 0 else pick.choice(APPS), "entity": "", "weight": 1.0,
            "scale_factor": size, "scale_factor_asked": size, "scale_factor_min": size, "scale_factor_max": size,
            "accelerators": held, "steps_done": pick.randrange(0, total or 50000), "steps_total": total,
            "steps_per_s": round(pick.uniform(0.4, 60), 3) if state == "R" else 0.0,
            "scalars": {"loss": round(pick.uniform(0.02, 4), 4)} if state != "PD" else {},
            "share_target": target, "share_got": round(min(1, target * pick.uniform(0.6, 1.15)), 3),
            "pauses": pick.randrange(40), "moves": pick.randrange(8), "pausing_s": round(pick.uniform(0, 90), 2),
            "epoch": 3, "incarnations": 2, "last_generation": {"epoch": 3, "step": 1200} if i % 2 else None,
            "reason": REASONS[state], "memory": "in host memory" if state == "S" else "",
            "submitted_at_s": time.time() - 60 * i - 40, "ended_at_s": None, "age_s": 60.0 * i + 40,
            "received_s": 20.0 * i, "failures_in_a_row": 3 if state == "F" else 0,
            "checkpoint_directory": "/srv/checkpoints/%s" % name,
            "exit": {"failures": 3, "exit_code": 1, "signal": None} if state == "F" else None,
            "rho": round(pick.uniform(0.7, 1.4), 3), "left_s": 900.0, "code": "running", "bidder": "coordinator"}

    def element(self, i, array, index, places):
        """Of one array, most of which waits."""
        name = HOSTILE if self.hostile else "sweep"
        row = {**self.job(i, places if index < 3 else []), "name": "%s_%d" % (name, index), "owner": "ann", "app": "sweep",
               "array": array, "array_name": name, "array_index": index}
        if not row["accelerators"]:
            row.update(state="PD", reason=REASONS["PD"], exit=None)
        return row

    def status(self):
        counts = dict.fromkeys(["PD", "R", "S", "CG", "CD", "F", "CA"], 0)
        for job in self.jobs:
            counts[job["state"]] += 1
        counts["CD"] = 112
        return {
            "term": 2, "seq": 40211, "now_s": time.time() - self.began, "policy": self.policy,
            "policy_option": "max_min_fairness_perf", "user_shares": True, "entities": [], "mechanism": "rounds",
            "queue": "priority", "memory_rounds": None, "reset_interval_s": None, "placement_sensitive": None,
            "rounds": int((time.time() - self.began) / 360), "round_duration_s": 360.0, "lease_duration_s": 30.0,
            "round_ends_in_s": 360 - (time.time() - self.began) % 360, "outcome": "optimal", "objective": 0.4183,
            "bound": 0.4183, "gap": 0.0, "solver": "highs", "detail": "",
            "kept_out": {"frames_dropped": 0, "messages_refused": 2, "connections_refused": 0, "connections_cut": 0,
                         "handshakes_failed": 0},
            "profiling": {"percentage_max": 5.0, "accelerators": 1, "accelerator_s": 5200.0},
            "failures": {"workers_lost": 3, "busy_s": 200000.0, "interval_s": 66666.0},
            "troubles": ["the journal's disk is 91 % full: free some of it"] if len(self.nodes) > 3 else [],
            "jobs": counts, "app_shares": False, "introspection": False}

    def list_jobs(self, query):
        rows = self.jobs
        if query.get("state"):
            rows = [row for row in rows if row["state"] in query["state"].split(",")]
        after = int(query.get("cursor", 0))
        rows = [row for row in rows if row["id"] > after]
        limit = int(query.get("limit", 100))
        page = rows[:limit]
        return {"jobs": page, "next_cursor": page[-1]["id"] if len(rows) > limit else 0}

    def throughputs(self, seed):
        pick = random.Random(seed)
        return [{"type": kind, "steps_per_s": 0.0 if kind == "k80" and pick.random() < 0.3 else
                 round(pick.uniform(0.5, 80), 3), "given": 12.5 if kind == "v100" else None,
                 "source": pick.choice(["measured", "given", "guessed"])} for kind in TYPES]

    def leases(self, job):
        pick = random.Random(job["id"])
        places = [(node["server"], one) for node in self.nodes for one in node["accelerators"]][:40]
        at = time.time() - 2.5 * 3600
        rows = []
        steps = 0
        where = pick.choice(places)
        while at < time.time() - 400:
            before = where
            if pick.random() < 0.35:
                where = pick.choice(places)
            moved = bool(rows) and where[1]["uuid"] != before[1]["uuid"]
            length = 360 * pick.randrange(1, 4)
            end = at + length
            ended = pick.choice(["paused", "paused", "paused", "process gone", "no room"])
            last = end > time.time() - 400
            rows.append({"seq": len(rows) + 1, "job": job["id"], "rank": 0, "epoch": 1, "server": where[0],
                         "type": where[1]["type"], "uuid": where[1]["uuid"], "from_s": at,
                         "to_s": 0 if last and job["state"] == "R" else min(end, time.time()), "steps_from": steps,
                         "steps_to": steps + length * 8, "ended": "" if last and job["state"] == "R" else ended})
            if moved:
                rows[-1]["why_moved"] = "moved from %s/%s to %s/%s: job 12 has %s/%s" % (
                    before[0], before[1]["uuid"], where[0], where[1]["uuid"], before[0], before[1]["uuid"])
            if rows[-1]["ended"] == "paused":
                rows[-1]["why_ended"] = "paused: preempted by job 12, its share is exhausted (34 % of the " \
                                        "time received, target 33 %)" + (HOSTILE if self.hostile else "")
            steps += length * 8
            at = end + pick.choice([2, 4, 360, 720])
        return rows

    def job_document(self, job):
        begin = time.time() - 2.5 * 3600
        return {
            "job": job,
            "why": {"job": job["id"], "name": job["name"], "state": job["state"], "reason": job["reason"], "memory": "",
                    "code": "running", "throughputs": self.throughputs(job["id"]), "share_target": job["share_target"],
                    "share_got": job["share_got"], "place": 4 if job["state"] == "PD" else None, "rho": job["rho"],
                    "auction": ""},
            "history": {"job": job["id"], "name": job["name"], "state": job["state"], "reason": job["reason"]},
            "leases": self.leases(job),
            "checkpoints": [{"seq": 10 * n, "job": job["id"], "number": n, "epoch": 1 + n // 4, "step": 400 * n,
                             "at_s": begin + 900 * n, "state_bytes": 471859200 if n > 1 else 0,
                             "server": HOSTILE if self.hostile else server_of(n % 3)} for n in range(1, 9)],
            "steps": [{"seq": n, "job": job["id"], "number": n, "at_s": begin + 60 * n, "steps_done": 480 * n,
                       "steps_per_s": 8 + (n % 17) / 10, "type": "v100"} for n in range(150)]}

    def answer(self, path, query):
        """A document, or None: there is none."""
        if path in self.answers:
            return self.answers[path]
        parts = path.split("/")
        if path == "/api/status":
            return self.status()
        if path == "/api/nodes":
            return self.nodes
        if path == "/api/jobs":
            return self.list_jobs(query)
        if parts[2] == "job":
            job = next((one for one in self.jobs if str(one["id"]) == parts[3]), None)
            if job is None:
                return None
            if len(parts) == 4:
                return self.job_document(job)
            if parts[4] == "log":
                return {"job": job["id"], "rank": 0, "server": server_of(0), "complete": True, "text": "".join("step %6d  loss %.4f  8.1 steps/s\n" % (n * 10, 4 / (1 + n / 9))
                                        for n in range(int(query.get("tail", 200)))) +
                        ("<b>" + HOSTILE + "</b>\n" if self.hostile else "")}
            loss = job["scalars"].get("loss", 1)
            return {"job": job["id"],
                    "points": [{"steps_done": n * job["steps_done"] // 400, "loss": loss * (1 + 9 * (1 - n / 400) ** 4)}
                               for n in range(1, 400)]}
        if path == "/api/fairness":
            begin = int(time.time()) - 3 * 3600
            return {
                "since_s": begin - 27 * 86400, "until_s": time.time(),
                "users": [{"user": user, "used_h": 12.5 * i + 6, "opaque_h": 0 if i else 2.0, "entitled_h": 11.0 * i + 4,
                           "used_h_by_type": {}} for i, user in enumerate(USERS)],
                "apps": self.answer("/api/apps", query),
                "samples": {
                    "at_s": [begin + 360 * n for n in range(30)],
                    "users": [{"name": HOSTILE if self.hostile and i == 0 else user, "owner": "",
                               "share": [round(0.8 + 0.1 * i + n / 100, 4) for n in range(30)],
                               "rho": [None] * 10 + [1.2 - 0.1 * i] * 20} for i, user in enumerate(USERS)],
                    "apps": [{"name": app, "owner": USERS[i], "share": [0.9 + 0.1 * i] * 30,
                              "rho": [round(0.8 + 0.2 * i + n / 200, 4) for n in range(30)]}
                             for i, app in enumerate(APPS[1:])]},
                "shares": [{"seq": n, "from_s": begin + 360 * n, "to_s": begin + 360 * (n + 1),
                            "entitled": {user: 4 + i + ((n * (i + 3)) % 7) / 3 for i, user in enumerate(USERS)}}
                           for n in range(30)]}
        if path == "/api/apps":
            return [{"app": app, "owner": USERS[i], "jobs": 3 + i, "running": 1 + i, "accelerators": 2 * i + 1,
                     "left_accelerator_s": 40000.0 * (i + 1), "rho": [0.84, 1.02, 1.37][i], "bidder": "coordinator"}
                    for i, app in enumerate(APPS[1:])]
        if path == "/api/policy":
            if "preview" in query:
                return {"policy": self.policy, "preview": query["preview"],
                        "jobs": [{"id": job["id"], "name": job["name"], "user": job["owner"],
                                  "share_now": job["share_target"], "share_then": job["share_target"] * (0.8 + (i % 5) / 10)}
                                 for i, job in enumerate(self.jobs)]}
            return {"status": self.status(), "solve_s": 0.214,
                    "policies": ["fifo", "finish_time_fairness_perf", "max_min_fairness", "max_min_fairness_perf"],
                    "throughputs": [{"job": job["id"], "name": job["name"], "throughputs": self.throughputs(job["id"])}
                                    for job in self.jobs[:256]]}
        return None


class Stub:
    """Serves the pages and the documents at a port of its own."""

    def __init__(self, documents, port=0):
        self.documents = documents
        self.requests = []
        self.actions = []
        self.refusal = None  # of actions: (status, text)
        self.fails = set()   # paths that answer 503
        self.events_open = True
        self.event_number = 0
        self.changed = threading.Condition()
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, body, kind="application/json"):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": len(data)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                stub.requests.append(self.path)
                if url.path == "/api/events":
                    return self.events()
                if url.path.startswith("/api/") and self.headers.get("Authorization", RIGHT) != RIGHT:
                    return self.reply(401, {"error": "the token is unknown or has expired"})
                if url.path in stub.fails:
                    return self.reply(503, {"error": "the coordinator does not answer"})
                if url.path.startswith("/api/"):
                    document = stub.documents.answer(url.path, dict(urllib.parse.parse_qsl(url.query)))
                    if document is None:
                        return self.reply(404, {"error": "there is no %s" % url.path})
                    return self.reply(200, document)
                name = url.path.lstrip("/") or "index.html"
                file = CHART if name == "chart.umd.js" else PAGES / name
                if "/" in name or not file.is_file():
                    return self.reply(404, {"error": "there is no %s" % url.path})
                kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
                return self.reply(200, file.read_bytes(), kind)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.headers.get("Authorization") != RIGHT:
                    return self.reply(401, {"error": "the token is unknown or has expired"})
                if stub.refusal:
                    return self.reply(stub.refusal[0], {"error": stub.refusal[1]})
                stub.actions.append(body)
                return self.reply(200, {})

            def events(self):
                if not stub.events_open:
                    return self.reply(503, {"error": "too many listen"})
                self.send_response(200)
                for name, value in {**HEADERS, "Content-Type": "text/event-stream", "Connection": "close"}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.close_connection = True
                number = -1
                try:
                    while stub.events_open:
                        if number != stub.event_number:
                            number = stub.event_number
                            event = json.dumps({"seq": number, "status": stub.documents.status()})
                            self.wfile.write(("event: update\ndata: %s\n\n" % event).encode())
                        else:
                            self.wfile.write(b": alive\n\n")
                        self.wfile.flush()
                        with stub.changed:
                            stub.changed.wait(0.5)
                except OSError:
                    pass  # the browser left

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass  # a browser that leaves early is none

        self.server = Server(("127.0.0.1", port), Handler)
        self.address = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def update(self):
        with self.changed:
            self.event_number += 1
            self.changed.notify_all()

    def set_events(self, is_open):
        with self.changed:
            self.events_open = is_open
            self.changed.notify_all()

    def close(self):
        self.set_events(False)
        self.server.shutdown()
        self.server.server_close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--servers", type=int, default=6)
    parser.add_argument("--elements", type=int, default=0, help="of an array, beside the jobs")
    parser.add_argument("--hostile", action="store_true", help="names that are HTML")
    parser.add_argument("--port", type=int, default=8080)
    args = parser.parse_args()
    stub = Stub(Documents(args.jobs, args.servers, args.hostile, args.elements), args.port)
    print("%s/#token=%s" % (stub.address, TOKEN), flush=True)
    while True:
        time.sleep(1)
        stub.update()


if __name__ == "__main__":
    main()
