"""hermes-agent's Docker environment: runs a command for each line, prints the seconds it took."""

import sys
import time

from tools.environments.docker import DockerEnvironment

place = DockerEnvironment(sys.argv[1], cwd="/", timeout=60, network=False, persist_across_processes=False)
for line in sys.stdin:
    begin = time.perf_counter()
    place.execute(line.rstrip("\n"))
    print("took", time.perf_counter() - begin, flush=True)
place.cleanup()
