"""HTTP/2 by the byte, for clients that do what libraries do not let them."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_STREAM, END_HEADERS = 1, 4


def hpack_length(number):
    """A string's length as HPACK writes it, without Huffman coding."""
    if number < 127:
        return bytes([number])
    rest, out = number - 127, [127]
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    return bytes([*out, rest])


def header(name, value):
    """A literal header that is never indexed."""
    return b"\0" + hpack_length(len(name)) + name + hpack_length(len(value)) + value


def frame(kind, flags, payload, stream=1):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def call(method):
    """The headers of a gRPC call of ptqwatch.v1.MonitorService."""
    return b"".join(header(name, value) for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/ptqwatch.v1.MonitorService/" + method), (b":authority", b"x"),
        (b"content-type", b"application/grpc")))


OPENING = PREFACE + frame(SETTINGS, 0, b"", 0)
# A WatchReports of all reports, to be sent after OPENING.
WATCH_ALL = (frame(HEADERS, END_HEADERS, call(b"WatchReports") + header(b"te", b"trailers"))
             + frame(DATA, END_STREAM, b"\0\0\0\0\2\x08\0"))
