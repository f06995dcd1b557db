"""hermes-agent's local environment: runs a command for each line, prints the seconds it took."""

import sys
import time

from tools.environments.local import LocalEnvironment

place = LocalEnvironment(cwd="/tmp", timeout=60)
for line in sys.stdin:
    begin = time.perf_counter()
    place.execute(line.rstrip("\n"))
    print("took", time.perf_counter() - begin, flush=True)
place.cleanup()
