"""Modules that a skill has no use for, by what they would let it do."""

from __future__ import annotations

NETWORK = frozenset(
    {"socket", "ssl", "http.client", "http.server", "urllib.request", "urllib3", "requests", "httpx", "aiohttp",
     "ftplib", "webbrowser", "smtplib", "imaplib", "poplib", "telnetlib", "paramiko", "websocket", "websockets",
     "socketserver", "xmlrpc", "xmlrpc.client", "nntplib", "pycurl", "dns", "scapy",
     "_socket", "_ssl", "wsgiref", "urllib.robotparser", "xmlrpc.server", "antigravity"}
)  # fmt: skip
KERNEL = frozenset(
    {
        "ctypes",
        "_ctypes",
        "cffi",
        "_posixsubprocess",
        "_winapi",
        "pyseccomp",
        "ptrace",
        "frida",
        "_testcapi",
        "_testinternalcapi",
        "_xxsubinterpreters",
        "_interpreters",
        "spwd",
    }
)
OBJECTS = frozenset(
    {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "jsonpickle", "joblib"}
)
IMPORTS = frozenset(
    {
        "importlib",
        "imp",
        "pkgutil",
        "zipimport",
        "runpy",
        "code",
        "codeop",
        "site",
        "ensurepip",
        "pip",
        "pkg_resources",
        "_imp",
        "_frozen_importlib",
        "_frozen_importlib_external",
        "venv",
        "test",
        "distutils",
        "pdb",
        "bdb",
    }
)
RESERVED = frozenset(
    {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "conftest", "test_main"}
    | {name.partition(".")[0] for name in NETWORK | KERNEL | OBJECTS | IMPORTS}
)
LOADS_FILES = frozenset({"run_path", "run_module"})
TESTED_BY = frozenset({"importlib", "runpy"})
"""What tests load a script with, or run it as a program."""
