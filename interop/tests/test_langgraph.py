"""The LangGraph worker's graph sleeps in a continuation and wakes in another process's graph."""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/langgraph-worker"))
from worker import graph, run

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


if __name__ == "__main__":
    unittest.main()
