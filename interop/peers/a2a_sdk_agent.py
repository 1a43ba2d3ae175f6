"""The agent of examples/a2a-sdk-agent, as a peer for the tests: what readers run is what is tested."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[2] / "examples/a2a-sdk-agent/agent.py"), run_name="__main__")
