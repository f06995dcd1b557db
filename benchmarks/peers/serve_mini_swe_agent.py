"""mini-swe-agent's local environment: runs a command for each line, prints the seconds it took."""

import sys
import time

from minisweagent.environments.local import LocalEnvironment

place = LocalEnvironment()
for line in sys.stdin:
    begin = time.perf_counter()
    place.execute({"command": line.rstrip("\n")})
    print("took", time.perf_counter() - begin, flush=True)
