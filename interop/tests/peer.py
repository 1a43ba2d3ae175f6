"""What the tests here share: an agent as a process, a call to it, and a receiver for what it pushes."""

import json
import queue
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[2]

# One of every kind of part, with what tends to be lost: text outside ASCII, bytes, names, media types, metadata.
PARTS = [
    {"text": "héllo 世界 🦀\u2028\n\ttab"},
    {"data": {"n": 1, "x": [1.5, None, True, "ü"]}},
    {"raw": "AAEC/w==", "filename": "a.bin", "mediaType": "application/octet-stream"},
    {"url": "https://files.invalid/y", "mediaType": "text/plain"},
    {"text": "m", "metadata": {"k": "v"}},
]


class Agent:
    """`with Agent("a2a_sdk_agent.py", "--delay", "0.2") as a:` until it is listening; ended on the way out."""

    def __init__(self, script, *args):
        self.command = [sys.executable, str(ROOT / "interop/peers" / script), *args]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        word, _, self.url = self.process.stdout.readline().strip().partition(" ")
        if word != "ready":
            self.__exit__()
            raise AssertionError(f"{self.command[1]} ended before it listened")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=20)
        self.process.stdout.close()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=20) as r:
            return json.load(r)

    def call(self, method, params, version="1.0", **headers):
        """The result of a JSON-RPC call, or the HTTP status where that isn't 200."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"Content-Type": "application/json", "A2A-Version": version, **headers}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, body, headers), timeout=20) as r:
                answer = json.load(r)
        except urllib.error.HTTPError as e:
            e.close()
            return e.code
        assert "result" in answer, answer
        return answer["result"]

    def send(self, parts, configuration=None, message=None, **headers):
        """The task that SendMessage answers with; waits for it to end or ask unless told otherwise."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts, **(message or {})}
        result = self.call("SendMessage", {"message": message, "configuration": configuration or {}}, **headers)
        return result["task"] if isinstance(result, dict) else result


class Receiver:
    """Takes pushes on a free port of this machine; `next()` gives headers and body in the order they came."""

    def __enter__(self):
        arrived = self.arrived = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                arrived.put((self.headers, json.loads(body)))
                self.send_response(202)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def next(self):
        return self.arrived.get(timeout=20)


def state(task):
    return task["status"]["state"].removeprefix("TASK_STATE_")


def only_artifact(task):
    (artifact,) = task["artifacts"]
    return artifact["parts"]
