"""The program of attempts that runs in a sandbox. It is sent there as text (``canaries.program``), never imported here.

Standard library only, for Python 3.6 and later. Each attempt tries one thing that a policy forbids and is run in a
process of its own: it returns what it got if it *worked*, raises ``OSError`` if the kernel refused, and ``Absent`` if
there was nothing to be had.
"""
