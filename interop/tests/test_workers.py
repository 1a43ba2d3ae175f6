"""writer.py keeps the contract of `exeat worker`: a lease on stdin, one JSON object on stdout."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

WRITER = Path(__file__).parents[2] / "examples/workers/writer.py"
INVOICE = {"number": "17", "lines": [{"cents": 700}, {"cents": 300}], "total_cents": 1000}


def work(kind="WORK", may=("agent:auditor",), data=INVOICE, continuation=None, reply=None):
    lease = {
        "kind": kind,
        "may": list(may),
        "input": {"parts": [{"data": data}], "text": "", "data": data},
        "continuation": continuation,
        "replies": [{"id": "audit", "to": "agent:auditor", "reason": None, "output": None, **reply}] if reply else [],
    }
    out = subprocess.run([sys.executable, WRITER], input=json.dumps(lease), text=True, capture_output=True, check=True)
    return json.loads(out.stdout)


class Writer(unittest.TestCase):
    def test_it_hands_the_invoice_to_the_auditor_and_leaves_a_continuation(self):
        self.assertEqual(
            work(),
            {
                "suspend": {
                    "continuation": {"note": "Invoice 17 over 10.00"},
                    "delegations": [
                        {
                            "id": "audit",
                            "to": "agent:auditor",
                            "input": {"text": "review: Invoice 17 over 10.00", "data": INVOICE},
                        }
                    ],
                }
            },
        )

    def test_without_the_right_to_ask_the_draft_is_the_output(self):
        self.assertEqual(work(may=()), {"output": {"text": "Invoice 17 over 10.00", "data": INVOICE}})

    def test_the_verdict_of_the_auditor_decides(self):
        for data, text, ok in [
            ({"ok": True}, "Invoice 17: audited", True),
            ({"ok": False}, "Invoice 17: refused by the auditor", False),
            ({"ok": "yes"}, "Invoice 17: refused by the auditor", False),
            (None, "Invoice 17: refused by the auditor", False),
        ]:
            with self.subTest(data=data):
                reply = {"status": "completed", "output": {"parts": [], "text": "", "data": data}}
                out = work("REPLY", continuation={"note": "Invoice 17"}, reply=reply)
                self.assertEqual(out, {"output": {"text": text, "data": {"ok": ok}}})

    def test_no_verdict_and_no_invoice_are_failures_that_trying_again_would_not_help(self):
        denied = {"status": "denied", "reason": {"code": "no_policy_allows", "message": "nothing allows it", "next": ""}}
        for out, why in [
            (work("REPLY", continuation={"note": "n"}, reply=denied), "nothing allows it"),
            (work("REPLY", continuation={"note": "n"}, reply={"status": "awaiting_input"}), "awaiting_input"),
            (work(data=None), "no invoice"),
            (work(data={"number": "17", "total_cents": "1000"}), "no invoice"),
        ]:
            with self.subTest(why):
                self.assertFalse(out["fail"]["retry"])
                self.assertIn(why, out["fail"]["reason"])


if __name__ == "__main__":
    unittest.main()
