"""An A2A agent on the official Python SDK. It has no model: it gives back the parts it was sent.

The first line of the text may hold a directive, so that one agent shows every way a task can go:

    ask: QUESTION     asks back, then completes with the answer
    fail: REASON      ends failed
    reject: REASON    ends rejected
    review: TITLE     checks that the invoice in the data part adds up, answers {"ok": true|false}
"""

import argparse
import asyncio
import hmac
import socket

import httpx
import uvicorn
from a2a.helpers import new_data_part, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse


def directive(parts):
    """The directive in the first line of the first text part, or `("", "")`."""
    line = next((p.text for p in parts if p.HasField("text")), "").split("\n")[0]
    word, colon, rest = line.partition(":")
    return (word, rest.strip()) if colon and word in ("ask", "fail", "reject", "review") else ("", "")


def review(title, parts):
    invoice = next((MessageToDict(p.data) for p in parts if p.HasField("data")), None)
    try:
        ok = sum(line["cents"] for line in invoice["lines"]) == invoice["total_cents"]
    except (TypeError, KeyError):
        ok = False
    verdict = "adds up" if ok else "does not add up"
    return [new_text_part(f"{title}: {verdict}"), new_data_part({"ok": ok})]


class Echo(AgentExecutor):
    def __init__(self, delay):
        self.delay = delay

    async def execute(self, context, event_queue):
        parts = list(context.message.parts)
        word, rest = directive(parts)
        if context.current_task is None:
            task = new_task_from_user_message(context.message)
            task.id, task.context_id = context.task_id, context.context_id
            await event_queue.enqueue_event(task)
        else:
            word = ""  # An answer to our question is never itself a directive.
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        note = updater.new_agent_message([new_text_part(rest)]) if rest else None
        if word == "reject":
            return await updater.reject(note)
        await updater.start_work()
        await asyncio.sleep(self.delay)
        if word == "ask":
            return await updater.requires_input(note)
        if word == "fail":
            return await updater.failed(note)
        out = review(rest, parts) if word == "review" else parts
        await updater.add_artifact(out, name="result")
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Bearer:
    """Lets a request pass if it carries the token. The card stays public: it says how to ask."""

    def __init__(self, app, token):
        self.app, self.expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope, receive, send):
        given = dict(scope.get("headers", [])).get(b"authorization", b"")
        public = scope["type"] != "http" or scope["path"].startswith("/.well-known/")
        ok = public or hmac.compare_digest(given, self.expected)
        await (self.app if ok else PlainTextResponse("unauthorized", 401))(scope, receive, send)


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets=sockets)
        if self.started:
            host, port = sockets[0].getsockname()
            print(f"ready http://{host}:{port}", flush=True)


def app(url, args):
    versions = ["1.0", "0.3"] if args.protocol == "both" else ["1.0"]
    card = AgentCard(
        name="Echo",
        description="Gives back what it was sent; asks, fails or reviews an invoice when told to.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=v) for v in versions
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=args.push == "on"),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[
            AgentSkill(id="echo", name="Echo", description="Gives back all parts.", tags=["demo"]),
            AgentSkill(id="review-invoice", name="Review", description="Checks a sum.", tags=["demo"]),
        ],
    )
    push = {}
    if args.push == "on":
        configs = InMemoryPushNotificationConfigStore()
        # Without `trust_env=False` a proxy variable would send callbacks for loopback elsewhere.
        client = httpx.AsyncClient(timeout=10, trust_env=False)
        push = {"push_config_store": configs, "push_sender": BasePushNotificationSender(client, configs)}
    handler = DefaultRequestHandler(Echo(args.delay), InMemoryTaskStore(), card, **push)
    routes = create_agent_card_routes(card)
    routes += create_jsonrpc_routes(handler, "/", enable_v0_3_compat=args.protocol == "both")
    app = Starlette(routes=routes)
    return Bearer(app, args.token) if args.token else app


def main():
    cli = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    cli.add_argument("--port", type=int, default=0, help="0 takes a free one; the ready line tells which")
    cli.add_argument("--push", choices=["on", "off"], default="on", help="send push notifications")
    cli.add_argument("--protocol", choices=["1.0", "both"], default="1.0", help="both: 0.3 as well")
    cli.add_argument("--delay", type=float, default=0.0, metavar="S", help="seconds spent working")
    cli.add_argument("--token", help="demand this bearer token")
    args = cli.parse_args()
    with socket.create_server(("127.0.0.1", args.port)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/"
        Server(uvicorn.Config(app(url, args), log_level="warning")).run(sockets=[sock])


if __name__ == "__main__":
    main()
