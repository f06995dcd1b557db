"""Report whether a file is another name (a hard link) of a secret; the request is JSON on standard input.

The modules ``filetrace`` and ``sensitive`` are sent before this one, concatenated with it.
"""

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec_agent.tools.inside.sensitive import homes_of, find_linked_secrets


def main() -> "None":
    """Print ``yes`` or ``no``."""
    request = json.load(sys.stdin)
    found = find_linked_secrets(homes_of(request["home"]), request["ours"])
    sys.stdout.write("yes" if request["identity"] in ["%d:%d" % each for each in found] else "no")


main()
