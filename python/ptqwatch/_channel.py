"""Messages between a trainer and its worker: small dicts, whole or not at all, which never make the sender wait."""

import json
import select
import socket
import zlib

_MOST_BYTES = 1 << 18


def pair():
    """Two connected ends (socket, socket)."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    return ends


def send(end, message):
    """Sends a message. False if there is no room for it now, or the other end is gone."""
    try:
        end.send(zlib.compress(json.dumps(message).encode(), 1))
    except OSError:
        return False
    return True


def receive(end):
    """The messages that have arrived."""
    messages = []
    while True:
        try:
            data = end.recv(_MOST_BYTES)
        except OSError:
            return messages
        if not data:
            return messages
        messages.append(json.loads(zlib.decompress(data)))


def wait(end, seconds):
    """Waits until a message is there, for at most `seconds`, without the interpreter's lock."""
    poll = select.poll()
    poll.register(end, select.POLLIN)
    poll.poll(max(0.0, 1e3 * seconds))
