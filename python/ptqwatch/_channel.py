"""What a trainer and its worker tell each other. No sender ever waits for the other process."""

import json
import os
import select
import socket
import struct
import zlib

# Of a message in the socket. A larger one is in a file, whose descriptor is sent.
_MOST_BYTES = 1 << 18
_IN_FILE = b"in a file"


def pair():
    """Two connected ends (socket, socket)."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    return ends


def encode(message):
    """A dict as `post` takes it."""
    return zlib.compress(json.dumps(message).encode(), 1)


def post(end, data):
    """Sends an encoded message, whole or not at all. False if there is no room for it now, or the other end is gone."""
    try:
        if len(data) < _MOST_BYTES:
            end.send(data)
        else:
            with open(os.memfd_create("ptqwatch-message", os.MFD_CLOEXEC), "wb", buffering=0) as file:
                while data:
                    data = data[file.write(data):]
                socket.send_fds(end, [_IN_FILE], [file.fileno()])
    except OSError:
        return False
    return True


def send(end, message):
    """Encodes a message and posts it."""
    return post(end, encode(message))


def receive(end):
    """The messages that have arrived."""
    messages = []
    while True:
        try:
            data, files, _, _ = socket.recv_fds(end, _MOST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return messages
        if not data:
            return messages
        if data == _IN_FILE:
            if not files:  # no descriptor was left for it
                continue
            with open(files[0], "rb") as file:
                file.seek(0)
                data = file.read()
        messages.append(json.loads(zlib.decompress(data)))


def wait(end, seconds):
    """Waits until a message is there, for at most `seconds`, without the interpreter's lock. False if the other end is gone."""
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return not any(event & select.POLLHUP for _, event in poll.poll(max(0.0, 1e3 * seconds)))


class Newest:
    """A text that one process replaces and another reads, in a file: only the newest is kept, of any size."""

    _HEADER = struct.Struct("=qq")  # version, 0 while it is being written; bytes

    def __init__(self, file):
        self.file = file

    def write(self, version, text):
        """`version` > 0 is another one than before. False if there is no memory for it."""
        data = text.encode()
        try:
            os.pwrite(self.file, self._HEADER.pack(0, 0), 0)
            if os.pwrite(self.file, data, self._HEADER.size) < len(data):
                return False
            os.pwrite(self.file, self._HEADER.pack(version, len(data)), 0)
        except OSError:
            return False
        return True

    def read(self, known):
        """(version, text), or None if it is still version `known`, or being written."""
        header = os.pread(self.file, self._HEADER.size, 0)
        version, size = self._HEADER.unpack(header) if header else (0, 0)
        if version in (0, known):
            return None
        data = os.pread(self.file, size, self._HEADER.size)
        return (version, data.decode()) if os.pread(self.file, self._HEADER.size, 0) == header else None
