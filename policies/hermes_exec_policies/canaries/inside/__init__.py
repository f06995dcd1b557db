"""The program of attempts that runs in a sandbox. It is sent as text (``canaries.program``) and never imported here.

It uses only the standard library of Python 3.6 and later. Each attempt tries one forbidden operation in a process of
its own: it returns a detail if the operation *worked*, raises ``OSError`` if the kernel refused it, and raises
``Absent`` if its subject does not exist.
"""
