"""The LangGraph worker's graph sleeps in a continuation and wakes in another process's graph."""

import json
import sys
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/langgraph-worker"))
from worker import graph, run, work_once

AUDITOR = "agent:auditor"


class Sleeping(unittest.TestCase):
    def wake(self, **reply):
        """The answer of a new graph that has nothing but what went through the work API as JSON."""
        _, body = run(graph(AUDITOR), {"kind": "WORK", "input": {"text": "tides"}})
        left = json.loads(json.dumps(body))["continuation"]
        reply = {"id": "ask", "to": AUDITOR, "reason": None, "output": None, **reply}
        return run(graph(AUDITOR), {"kind": "REPLY", "continuation": left, "replies": [reply]})

    def test_it_suspends_with_one_delegation_to_the_agent(self):
        act, body = run(graph(AUDITOR), {"kind": "WORK", "input": {"text": "tides"}})
        self.assertEqual(act, "suspend")
        self.assertEqual(
            body["delegations"], [{"id": "ask", "to": AUDITOR, "input": "What is known about tides?"}]
        )
        self.assertEqual(body.keys(), {"continuation", "delegations"})

    def test_a_new_graph_goes_on_from_the_continuation(self):
        self.assertEqual(
            self.wake(status="completed", output={"text": "much", "parts": [], "data": None}),
            ("complete", {"output": "tides: much"}),
        )

    def test_a_denial_is_an_answer_too(self):
        reason = {"code": "denied_by_policy", "message": "not allowed", "next": ""}
        self.assertEqual(
            self.wake(status="denied", reason=reason), ("complete", {"output": "tides: no answer: not allowed"})
        )


class Settling(unittest.TestCase):
    """Over a socket, against a server that speaks the work API's shapes and nothing else."""

    def setUp(self):
        self.leases, self.calls, self.answer = [], [], 200
        outer = self

        class WorkApi(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.calls.append((self.path, body))
                leasing = self.path == "/api/v1/leases"
                out = json.dumps({"leases": outer.leases} if leasing else {}).encode()
                self.send_response(200 if leasing else outer.answer)
                self.send_header("Content-Length", str(len(out)))
                self.end_headers()
                self.wfile.write(out)

            def log_message(self, *_):
                pass

        server = self.enterContext(ThreadingHTTPServer(("127.0.0.1", 0), WorkApi))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}/api/v1"
        self.api = self.enterContext(httpx.Client(base_url=url, trust_env=False))

    def work(self, lease):
        self.leases, self.calls = [{"lease_id": "L1", **lease}] if lease else [], []
        return work_once(self.api, graph(AUDITOR), {"role": "researcher"})

    def test_a_lease_is_settled_by_its_id_with_what_the_graph_came_to(self):
        self.assertEqual(self.work({"kind": "WORK", "input": {"text": "tides"}}), 1)
        ((path, _), (settled, body)) = self.calls
        self.assertEqual((path, settled), ("/api/v1/leases", "/api/v1/leases/L1/suspend"))
        reply = {"status": "completed", "reason": None, "output": {"text": "much"}}
        self.work({"kind": "REPLY", "continuation": body["continuation"], "replies": [reply]})
        self.assertEqual(self.calls[1], ("/api/v1/leases/L1/complete", {"output": "tides: much"}))

    def test_a_graph_that_breaks_fails_the_lease_and_may_be_tried_again(self):
        self.work({"kind": "REPLY", "continuation": None, "replies": []})
        path, body = self.calls[1]
        self.assertEqual((path, body["retry"]), ("/api/v1/leases/L1/fail", True))

    def test_a_lease_that_was_lost_is_let_go_and_no_work_is_no_error(self):
        self.answer = 409
        self.assertEqual(self.work({"kind": "WORK", "input": {"text": "tides"}}), 1)
        self.assertEqual(self.work(None), 0)

    def test_any_other_refusal_is_not_swallowed(self):
        self.answer = 403
        with self.assertRaises(httpx.HTTPStatusError):
            self.work({"kind": "WORK", "input": {"text": "tides"}})


if __name__ == "__main__":
    unittest.main()
