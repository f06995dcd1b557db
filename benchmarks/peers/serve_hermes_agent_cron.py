"""hermes-agent's scheduler: for each line with a schedule in JSON, the moments at which it is due."""

import json
import sys
from datetime import datetime
from zoneinfo import ZoneInfo

from cron import jobs

for line in sys.stdin:
    fields, zone, after, count = json.loads(line)
    now = datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone))
    jobs._hermes_now = lambda now=now: now  # noqa: SLF001  its clock
    found = []
    for _ in range(count):
        schedule = {"kind": "cron", "expr": fields}
        found.append(jobs.compute_next_run(schedule, found[-1] if found else None))
    print("due", json.dumps(found), flush=True)
