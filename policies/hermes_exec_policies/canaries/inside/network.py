"""Attempts on other hosts, on the machine's ports and sockets, on network settings and on the egress proxy."""

import os
import socket
import struct

from .kit import Absent, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .kit import Config

_NOWHERE = "192.0.2.1"
"""An address that is reserved for documentation (RFC 5737)."""
_NOWHERE_6 = "2001:db8::1"
"""An IPv6 address that is reserved for documentation (RFC 3849)."""
PATIENT_S = 20
"""Seconds to wait for an answer; a forbidden operation is refused at once."""
_LEADING_NOWHERE = {
    "lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0",
}  # fmt: skip
"""Interfaces that the kernel adds to every new namespace."""
_ENGINES = (
    "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
)  # fmt: skip


def _connect(family: int, address: "tuple[object, ...]") -> str:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(PATIENT_S)
    made.connect(address)
    return str(address)


@attempt("network-tcp")
def tcp(_: "Config") -> str:
    """Connect to another host."""
    return _connect(socket.AF_INET, (_NOWHERE, 80))


@attempt("network-tcp6")
def tcp6(_: "Config") -> str:
    """Connect to another host over IPv6."""
    return _connect(socket.AF_INET6, (_NOWHERE_6, 80))


@attempt("network-loopback")
def loopback(config: "Config") -> str:
    """Connect to a port of this machine on which a process outside listens."""
    return _connect(socket.AF_INET, ("127.0.0.1", config["outside"]["tcp"]))


@attempt("network-udp")
def udp(_: "Config") -> str:
    """Send a UDP packet."""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hermes", (_NOWHERE, 9))
    return "sent"


@attempt("network-dns")
def dns(_: "Config") -> str:
    """Resolve a host name."""
    try:
        return str(socket.getaddrinfo("example.org", 80)[0][4])
    except socket.gaierror:
        raise Absent("no name is resolved") from None


@attempt("network-raw")
def raw(_: "Config") -> str:
    """Open a raw socket."""
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return "a raw socket"


@attempt("network-packet")
def packet(_: "Config") -> str:
    """Open a packet socket, which captures traffic."""
    socket.socket(17, socket.SOCK_RAW, 0x0300)
    return "a packet socket"


@attempt("network-netlink")
def netlink(_: "Config") -> str:
    """Open a netlink socket, which configures the network."""
    socket.socket(16, socket.SOCK_RAW, 0).bind((0, 0))
    return "a netlink socket"


@attempt("network-vsock")
def vsock(_: "Config") -> str:
    """Open a socket to the hypervisor, which network namespaces do not isolate."""
    socket.socket(40, socket.SOCK_STREAM)
    return "a vsock socket"


@attempt("network-alg")
def alg(_: "Config") -> str:
    """Open a socket to the kernel's ciphers."""
    socket.socket(38, socket.SOCK_SEQPACKET)
    return "an AF_ALG socket"


@attempt("network-listen")
def listen(_: "Config") -> str:
    """Listen on a port."""
    made = socket.socket()
    made.bind(("0.0.0.0", 0))
    made.listen(1)
    return str(made.getsockname())


@attempt("network-interfaces")
def interfaces(_: "Config") -> str:
    """List the machine's network interfaces."""
    with open("/proc/net/dev") as file:
        names = [line.partition(":")[0].strip() for line in file if ":" in line]
    others = [name for name in names if name not in _LEADING_NOWHERE]
    if not others:
        raise Absent("there is none but the loopback")
    return ", ".join(others)


@attempt("network-abstract")
def abstract(config: "Config") -> str:
    """Connect to an abstract unix socket, which belongs to a network namespace."""
    socket.socket(socket.AF_UNIX).connect("\0" + config["outside"]["abstract"])
    return "connected"


@attempt("network-unix")
def unix(config: "Config") -> str:
    """Connect to a unix socket outside."""
    socket.socket(socket.AF_UNIX).connect(config["outside"]["socket"])
    return "connected"


@attempt("network-engine")
def engine(_: "Config") -> str:
    """Connect to the sockets of container engines and service managers."""
    found: "list[str]" = []
    for path in _ENGINES:
        try:
            socket.socket(socket.AF_UNIX).connect(path)
        except OSError:
            continue
        found.append(path)
    if not found:
        raise Absent("none of them is there")
    return ", ".join(found)


@attempt("network-inherited")
def inherited(_: "Config") -> str:
    """Find an inherited descriptor that was left open."""
    kept: "list[tuple[int, str]]" = []
    for fd in range(3, 256):
        try:
            kept.append((fd, os.readlink("/proc/self/fd/{}".format(fd))))
        except OSError:
            continue
    # The pipe of the report belongs to the suite.
    kept = [(fd, where) for fd, where in kept if not where.startswith(("pipe:", "/proc/"))]
    if not kept:
        raise Absent("none is open")
    return str(kept)


def _ask_proxy(request: bytes) -> str:
    """Send a request to the proxy, and return its answer; a refusal raises PermissionError."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(PATIENT_S)
    made.connect("/app/net/egress.sock")
    made.sendall(request)
    answer = made.recv(64)
    if answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 405 ", b"HTTP/1.1 400 ")):
        raise PermissionError(13, "refused")
    return answer.decode("latin-1")


def _through(target: str) -> str:
    return _ask_proxy("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n".format(target).encode())


@attempt("egress-address")
def egress_address(_: "Config") -> str:
    """Connect through the proxy to an address that was not granted."""
    return _through(_NOWHERE + ":443")


@attempt("egress-loopback")
def egress_loopback(config: "Config") -> str:
    """Connect through the proxy to a port of the machine outside."""
    return _through("127.0.0.1:{}".format(config["outside"]["tcp"]))


@attempt("egress-name")
def egress_name(_: "Config") -> str:
    """Connect through the proxy to a host name that was not granted."""
    return _through("hermes-exec-canary.invalid:443")


@attempt("egress-metadata")
def egress_metadata(_: "Config") -> str:
    """Connect through the proxy to the metadata service of clouds, which returns credentials."""
    return _through("169.254.169.254:80")


@attempt("egress-method")
def egress_method(config: "Config") -> str:
    """Send the proxy a method that it does not support."""
    return _ask_proxy("GET http://127.0.0.1:{}/ HTTP/1.1\r\n\r\n".format(config["outside"]["tcp"]).encode())


@attempt("egress-trick")
def egress_trick(config: "Config") -> str:
    """Send the proxy a host that it could parse differently from the resolver."""
    return _through("named.example:443@127.0.0.1:{}".format(config["outside"]["tcp"]))


@attempt("network-credentials")
def credentials(_: "Config") -> str:
    """Send forged credentials of root over a unix socket."""
    one, _other = socket.socketpair()
    ancillary = [(socket.SOL_SOCKET, 2, struct.pack("iii", os.getpid(), 0, 0))]
    one.sendmsg([b"x"], ancillary)
    if os.getuid() == 0:
        raise Absent("it is root in here")
    return "believed"
