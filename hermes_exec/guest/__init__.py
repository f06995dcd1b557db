"""The guest: the process on the target that serves the client. Standard library only, Python 3.6 and later.

These are ordinary modules here; ``hermes_exec.transport.bootstrap`` joins them and sends them through the channel, and
on the target they make up the package ``hermes_guest``. They import nothing from outside this folder, nor modules that
are slow to import (``signal``, ``socket``, ``json``, ``typing``): a guest has to answer within a few milliseconds.
"""
