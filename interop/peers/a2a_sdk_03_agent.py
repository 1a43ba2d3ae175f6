"""An agent on the last A2A SDK of the 0.3 generation. It gives back the parts it was sent, or asks first.

A text whose first line is `ask: QUESTION` is answered by that question; what comes next on the task completes it.
"""

import argparse
import asyncio
import socket

import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task


class Echo(AgentExecutor):
    def __init__(self, delay):
        self.delay = delay

    async def execute(self, context, event_queue):
        parts = list(context.message.parts)
        first = next((p.root.text for p in parts if isinstance(p.root, TextPart)), "")
        asks = first.startswith("ask:") and context.current_task is None
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await asyncio.sleep(self.delay)
        if asks:
            question = Part(root=TextPart(text=first.removeprefix("ask:").split("\n")[0].strip()))
            await updater.requires_input(updater.new_agent_message([question]), final=True)
            return
        await updater.add_artifact(parts, name="result")
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets=sockets)
        if self.started:
            host, port = sockets[0].getsockname()
            print(f"ready http://{host}:{port}", flush=True)


def app(url, args):
    card = AgentCard(
        name="Echo 0.3",
        description="Gives back what it was sent.",
        version="1.0.0",
        url=url,
        capabilities=AgentCapabilities(streaming=True, push_notifications=args.push == "on"),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[AgentSkill(id="echo", name="Echo", description="Gives back all parts.", tags=["demo"])],
    )
    push = {}
    if args.push == "on":
        configs = InMemoryPushNotificationConfigStore()
        # Without `trust_env=False` a proxy variable would send callbacks for loopback elsewhere.
        client = httpx.AsyncClient(timeout=10, trust_env=False)
        push = {"push_config_store": configs, "push_sender": BasePushNotificationSender(client, configs)}
    handler = DefaultRequestHandler(Echo(args.delay), InMemoryTaskStore(), **push)
    return A2AStarletteApplication(agent_card=card, http_handler=handler).build()


def main():
    cli = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    cli.add_argument("--push", choices=["on", "off"], default="on", help="send push notifications")
    cli.add_argument("--delay", type=float, default=0.0, metavar="S", help="seconds spent working")
    args = cli.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/"
        Server(uvicorn.Config(app(url, args), log_level="warning")).run(sockets=[sock])


if __name__ == "__main__":
    main()
