"""A LangGraph graph as a worker: its node asks a foreign agent, and the graph sleeps until the answer is there.

No model. The graph interrupts where it needs another agent; the worker turns the interrupt into `suspend` of the
work API and puts the graph's state into the continuation. Whichever worker leases the reply rebuilds the graph
from there, so no process, thread or checkpoint store has to survive in between.

    EXEAT_URL=http://127.0.0.1:7700 EXEAT_KEY=exk_… python worker.py --role researcher --ask agent:auditor
"""

import argparse
import os
import socket
import time
import uuid
from typing import Any, TypedDict

import httpx
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class State(TypedDict, total=False):
    topic: str
    question: str
    answer: str


def graph(agent: str):
    def plan(state: State) -> State:
        return {"question": f"What is known about {state['topic']}?"}

    def ask(state: State) -> State:
        # LangGraph runs this node again from its top when it resumes: nothing before the interrupt may have effects.
        reply = interrupt({"id": "ask", "to": agent, "input": state["question"]})
        if reply["status"] != "completed":
            return {"answer": f"no answer: {reply['reason']['message'] if reply['reason'] else reply['status']}"}
        return {"answer": reply["output"]["text"]}

    def report(state: State) -> State:
        return {"answer": f"{state['topic']}: {state['answer']}"}

    g = StateGraph(State)
    g.add_node("plan", plan)
    g.add_node("ask", ask)
    g.add_node("report", report)
    g.add_edge(START, "plan")
    g.add_edge("plan", "ask")
    g.add_edge("ask", "report")
    g.add_edge("report", END)
    return g.compile(checkpointer=InMemorySaver())


def run(compiled, lease: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What to call on the lease, and with which body."""
    thread = {"configurable": {"thread_id": str(uuid.uuid4())}}
    if lease["kind"] == "WORK":
        compiled.invoke({"topic": lease["input"]["text"]}, thread)
    else:
        left = lease["continuation"]
        compiled.update_state(thread, left["state"], as_node=left["after"])
        compiled.invoke(None, thread)  # up to the interrupt, which the reply then answers
        compiled.invoke(Command(resume=lease["replies"][0]), thread)
    now = compiled.get_state(thread)
    if now.interrupts:
        # The step before the waiting node is where a fresh thread has to be put.
        before = {"ask": "plan"}[now.next[0]]
        delegations = [i.value for i in now.interrupts]
        return "suspend", {"continuation": {"state": now.values, "after": before}, "delegations": delegations}
    return "complete", {"output": now.values["answer"]}


def work_once(api, compiled, want: dict[str, Any]) -> int:
    """Leases what there is, up to half a minute of waiting, and settles it. How many leases it was."""
    leases = api.post("/leases", json=want).raise_for_status().json()["leases"]
    for lease in leases:
        try:
            act, body = run(compiled, lease)
        except Exception as e:
            act, body = "fail", {"reason": f"{type(e).__name__}: {e}", "retry": True}
        done = api.post(f"/leases/{lease['lease_id']}/{act}", json=body)
        if done.status_code != 409:  # The lease is another worker's by now: what we made is dropped.
            done.raise_for_status()
    return len(leases)


def main():
    cli = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    cli.add_argument("--role", default="researcher")
    cli.add_argument("--ask", default="agent:auditor", metavar="ENDPOINT", help="who is asked")
    cli.add_argument("--url", default=os.environ.get("EXEAT_URL", "http://127.0.0.1:7700"))
    args = cli.parse_args()
    compiled = graph(args.ask)
    want = {"role": args.role, "worker": socket.gethostname(), "wait_s": 30, "max": 1}
    key = {"Authorization": f"Bearer {os.environ['EXEAT_KEY']}"}
    # Longer than `wait_s`: an empty answer is the server's to give.
    with httpx.Client(base_url=f"{args.url}/api/v1", headers=key, timeout=45, trust_env=False) as api:
        while True:
            try:
                work_once(api, compiled, want)
            except httpx.TransportError:
                time.sleep(2)  # The server is away. A lease that we held comes again, to us or to another.


if __name__ == "__main__":
    main()
