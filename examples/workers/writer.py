#!/usr/bin/env python3
"""A worker that delegates: it drafts a cover note for an invoice and has a foreign agent audit it.

Run it as `exeat worker --role writer -- python3 writer.py`. It is started once per lease: the lease comes on
stdin, one JSON object goes to stdout. Nothing waits here while the auditor works, however long that takes: the
process ends with `suspend`, and another one is started with kind `REPLY` and what this one left in `continuation`.
"""

import json
import sys

AUDITOR = "agent:auditor"


def draft(lease):
    invoice = lease["input"]["data"]
    try:
        note = f"Invoice {invoice['number']} over {invoice['total_cents'] / 100:.2f}"
    except (TypeError, KeyError):
        # Trying again wouldn't make the input better.
        return {"fail": {"reason": "the input has no invoice with number and total_cents", "retry": False}}
    # A step may narrow what its role is allowed to call. Without the right to ask, the draft is the result.
    if AUDITOR not in lease["may"]:
        return {"output": {"text": note, "data": invoice}}
    question = {"id": "audit", "to": AUDITOR, "input": {"text": f"review: {note}", "data": invoice}}
    return {"suspend": {"continuation": {"note": note}, "delegations": [question]}}


def finish(lease):
    note = lease["continuation"]["note"]
    (audit,) = lease["replies"]
    if audit["status"] != "completed":
        # Denied, failed, asking back: the workflow decides what that means, so it's told in full.
        reason = audit["reason"]["message"] if audit["reason"] else audit["status"]
        return {"fail": {"reason": f"{AUDITOR} gave no verdict: {reason}", "retry": False}}
    verdict = audit["output"]["data"]
    ok = isinstance(verdict, dict) and verdict.get("ok") is True
    return {"output": {"text": f"{note}: {'audited' if ok else 'refused by the auditor'}", "data": {"ok": ok}}}


lease = json.load(sys.stdin)
answer = {"WORK": draft, "REPLY": finish}[lease["kind"]](lease)
json.dump(answer, sys.stdout, ensure_ascii=True)
