"""A bridge: hands its own standard input and output to a guest that is already there. Sent as source.

argv: the guest's folder, its host name, its boot id, and what to write first. It exits with 3 when the
guest is gone and with 4 when this is another machine than the guest's; standard error says why.
"""

import _socket
import os
import sys

folder, host, boot, nonce = sys.argv[1:5]
here = os.uname().nodename
try:
    with open("/proc/sys/kernel/random/boot_id") as file:
        now = file.read().strip()
except OSError:
    now = boot
if here != host:
    os.write(2, "this is {}, the guest is on {}".format(here, host).encode())
    os._exit(4)
if now != boot:
    os.write(2, b"the machine was started anew since")
    os._exit(3)
door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    if os.stat(folder).st_uid != os.getuid():
        os.write(2, b"the guest is gone: its folder belongs to somebody else")
        os._exit(3)
    door.connect(folder + "/door")
    os.write(1, nonce.encode())
    rights = (0).to_bytes(4, sys.byteorder) + (1).to_bytes(4, sys.byteorder)
    door.sendmsg([b"h"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    door.recv(1)  # returns when the guest lets the connection go
except OSError as error:
    os.write(2, "the guest is gone: {}".format(error).encode())
    os._exit(3)
os._exit(0)
