"""A Google ADK agent behind A2A, without a model and so without a model key: it gives back the parts it was sent.

ADK accepts a push configuration and never delivers to it, so the result of this agent is always found by polling.
"""

import argparse
import logging
import socket
import warnings

warnings.filterwarnings("ignore", message=".*EXPERIMENTAL.*")

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai.types import Content


class Echo(BaseAgent):
    async def _run_async_impl(self, ctx):
        parts = list(ctx.user_content.parts)
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=Content(role="model", parts=parts))


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets=sockets)
        if self.started:
            host, port = sockets[0].getsockname()
            print(f"ready http://{host}:{port}", flush=True)


def main():
    cli = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    cli.add_argument("--port", type=int, default=0, help="0 takes a free one; the ready line tells which")
    args = cli.parse_args()
    logging.basicConfig(level=logging.WARNING)
    with socket.create_server(("127.0.0.1", args.port)) as sock:
        port = sock.getsockname()[1]
        agent = Echo(name="echo", description="Gives back what it was sent.")
        app = to_a2a(agent, host="127.0.0.1", port=port)
        Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


if __name__ == "__main__":
    main()
