"""A bridge: passes its standard input and output to a running guest. Sent as source.

argv: the guest's folder, host name and boot id, and the nonce to write first. It exits with 113 when the guest is gone
and with 114 on another machine than the guest's, codes that other programs hardly use; standard error has the reason.
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
    os._exit(114)
if now != boot:
    os.write(2, b"the machine was rebooted since")
    os._exit(113)
control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    if os.stat(folder).st_uid != os.getuid():
        os.write(2, b"the guest is gone: its folder belongs to another user")
        os._exit(113)
    control.connect(folder + "/door")
    os.write(1, nonce.encode())
    rights = (0).to_bytes(4, sys.byteorder) + (1).to_bytes(4, sys.byteorder)
    control.sendmsg([b"h"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    control.recv(1)  # returns when the guest closes the connection
except OSError as error:
    os.write(2, "the guest is gone: {}".format(error).encode())
    os._exit(113)
os._exit(0)
