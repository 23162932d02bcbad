"""Enters a network namespace with the default congestion control of Linux.

With BBR, the kernel sets a timer for most segments of a long body. In a virtual machine, these timers took about 70 % of
the CPU time of bodies of 10 MiB, with the gateway and with haproxy.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

DEFAULT = "cubic"
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")

# Constants of Linux: <sched.h>, <linux/sockios.h> and <net/if.h>.
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


def congestion_control() -> str:
    return CONGESTION_CONTROL.read_text().strip()


def enter_namespace() -> None:
    """Moves this process and its later children to a new network namespace, which has only the loopback interface.

    Raises OSError without the permission for it (`CAP_SYS_ADMIN`).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    CONGESTION_CONTROL.write_text(DEFAULT)
