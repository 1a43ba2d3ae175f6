"""The example agents keep what the Rust tests and the READMEs say of them. Run by `make check-examples`."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from peer import PARTS, Agent, Receiver, only_artifact, state

AT_ONCE = {"returnImmediately": True}


class A2aSdkAgent(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.agent = cls.enterClassContext(Agent("a2a_sdk_agent.py", "--protocol", "both"))

    def test_every_part_comes_back_unchanged(self):
        task = self.agent.send(PARTS)
        self.assertEqual(state(task), "COMPLETED")
        self.assertEqual(only_artifact(task), PARTS)

    def test_a_question_is_answered_on_the_same_task_and_the_answer_is_no_directive(self):
        asked = self.agent.send([{"text": "ask: which?"}])
        self.assertEqual(state(asked), "INPUT_REQUIRED")
        self.assertEqual(asked["status"]["message"]["parts"], [{"text": "which?"}])
        on = {"taskId": asked["id"], "contextId": asked["contextId"]}
        done = self.agent.send([{"text": "fail: this one"}], message=on)
        self.assertEqual((state(done), done["id"]), ("COMPLETED", asked["id"]))
        self.assertEqual(only_artifact(done), [{"text": "fail: this one"}])

    def test_told_to_fail_or_reject_it_says_why(self):
        for word, end in [("fail", "FAILED"), ("reject", "REJECTED")]:
            with self.subTest(word):
                task = self.agent.send([{"text": f"{word}: no paper\nmore"}])
                self.assertEqual(state(task), end)
                self.assertEqual(task["status"]["message"]["parts"], [{"text": "no paper"}])

    def test_a_review_says_whether_the_invoice_adds_up(self):
        lines = [{"cents": 700}, {"cents": 300}]
        for data, ok in [
            ({"lines": lines, "total_cents": 1000}, True),
            ({"lines": lines, "total_cents": 999}, False),
            ({"lines": "700", "total_cents": 700}, False),
            ([1], False),
            (None, False),
        ]:
            with self.subTest(data=data):
                task = self.agent.send([{"text": "review: Invoice 17"}, {"data": data}])
                self.assertEqual(only_artifact(task)[1], {"data": {"ok": ok}})

    def test_a_caller_of_0_3_is_served_on_the_same_url(self):
        message = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
        params = {"message": message, "configuration": {"blocking": True}}
        task = self.agent.call("message/send", params, version="0.3")
        self.assertEqual(task["status"]["state"], "completed")
        self.assertEqual(only_artifact(task), [{"kind": "text", "text": "hi"}])


class Working(unittest.TestCase):
    def config(self, receiver):
        auth = {"scheme": "Bearer", "credentials": "secret"}
        return AT_ONCE | {"taskPushNotificationConfig": {"url": receiver.url, "token": "secret", "authentication": auth}}

    def test_answers_at_once_then_pushes_every_change_with_both_credentials(self):
        with Receiver() as receiver, Agent("a2a_sdk_agent.py", "--delay", "0.2") as agent:
            self.assertTrue(agent.get("/.well-known/agent-card.json")["capabilities"]["pushNotifications"])
            self.assertEqual(state(agent.send(PARTS, self.config(receiver))), "SUBMITTED")
            seen = []
            while "COMPLETED" not in seen:
                headers, body = receiver.next()
                self.assertEqual(headers["Authorization"], "Bearer secret")
                self.assertEqual(headers["X-A2A-Notification-Token"], "secret")
                ((kind, event),) = body.items()
                seen.append(state(event) if "status" in event else kind)
            self.assertEqual(seen, ["SUBMITTED", "WORKING", "artifactUpdate", "COMPLETED"])

    def test_a_task_at_work_can_be_canceled(self):
        with Agent("a2a_sdk_agent.py", "--delay", "600") as agent:
            task = agent.send(PARTS, AT_ONCE)
            self.assertEqual(state(agent.call("CancelTask", {"id": task["id"]})), "CANCELED")
            self.assertEqual(state(agent.call("GetTask", {"id": task["id"]})), "CANCELED")

    def test_with_push_off_the_card_says_so(self):
        with Agent("a2a_sdk_agent.py", "--push", "off") as agent:
            card = agent.get("/.well-known/agent-card.json")
            self.assertFalse(card["capabilities"].get("pushNotifications", False))


class Guarded(unittest.TestCase):
    def test_the_card_is_public_and_everything_else_wants_the_token(self):
        with Agent("a2a_sdk_agent.py", "--token", "s3cret") as agent:
            self.assertEqual(agent.get("/.well-known/agent-card.json")["name"], "Echo")
            self.assertEqual(agent.send(PARTS), 401)
            self.assertEqual(agent.send(PARTS, Authorization="Bearer other"), 401)
            self.assertEqual(state(agent.send(PARTS, Authorization="Bearer s3cret")), "COMPLETED")


class AdkAgent(unittest.TestCase):
    def test_every_part_comes_back_unchanged_and_the_card_claims_no_push(self):
        with Agent("adk_agent.py") as agent:
            self.assertNotIn("pushNotifications", agent.get("/.well-known/agent-card.json")["capabilities"])
            task = agent.send(PARTS)
            self.assertEqual(state(task), "COMPLETED")
            self.assertEqual(only_artifact(task), PARTS)


if __name__ == "__main__":
    unittest.main()
