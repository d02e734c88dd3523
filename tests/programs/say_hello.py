#!/usr/bin/python3
"""A rank that speaks to its agent itself (base/wire/agent_messages.h), without the library: says hello, prints what it is
told, and does what its argument says afterwards:

  leave   finalizes              stay    prints further messages until it is ended      VERSION  leave, with that version
"""
import os
import socket
import struct
import sys

HELLO, WELCOME, REFUSED, RANK_LOST, LEAVE, GONE = range(1, 7)


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


class Reader:
    def __init__(self, body):
        self.body, self.at = body, 0

    def number(self, kind):
        value, = struct.unpack_from("<" + kind, self.body, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def bytes(self):
        count = self.number("I")
        self.at += count
        return self.body[self.at - count:self.at]

    def text(self):
        return self.bytes().decode()

    def list(self, read):
        return [read() for _ in range(self.number("I"))]


def send(agent, kind, body=b""):
    agent.sendall(struct.pack("<IH", len(body) + 2, kind) + body)


def receive(agent):
    def exactly(count):
        data = b""
        while len(data) < count:
            more = agent.recv(count - len(data))
            if not more:
                sys.exit("the agent closed the connection")
            data += more
        return data
    length, kind = struct.unpack("<IH", exactly(6))
    return kind, Reader(exactly(length - 2))


def welcome(reader):
    told = {name: reader.number(kind) for name, kind in
            (("rank", "i"), ("size", "i"), ("local_rank", "i"), ("local_size", "i"), ("job", "Q"), ("nonce", "Q"))}
    told["host"] = reader.text()
    told["hosts_of_ranks"] = reader.list(lambda: reader.number("I"))
    told["hosts"] = reader.list(lambda: (reader.text(), reader.list(reader.text)))
    told["ports"] = reader.list(lambda: reader.list(lambda: (reader.text(), reader.bytes())))
    told["secret"] = reader.bytes().hex()
    return told


def main():
    mode = sys.argv[1]
    version = mode if mode[0].isdigit() else "9.9"
    rank = int(os.environ["AIACC_RANK"])
    agent = socket.socket(socket.AF_UNIX)
    agent.connect("\0" + os.environ["AIACC_AGENT"].removeprefix("local:"))
    send(agent, HELLO, struct.pack("<H", 4) + text(version) +
         struct.pack("<iiI", rank, int(os.environ["AIACC_SIZE"]), 1) + text("tcp") + struct.pack("<IH", 2, 7000 + rank))
    while True:
        kind, reader = receive(agent)
        if kind == WELCOME:
            print("welcome", welcome(reader), flush=True)
            if mode != "stay":
                send(agent, LEAVE, struct.pack("<Q", 0))  # unauthenticated peers that it turned away
        elif kind == REFUSED:
            reader.number("i")
            print("refused", reader.text(), flush=True)
            return 3
        elif kind == RANK_LOST:
            print("lost", reader.number("i"), reader.text(), flush=True)
        elif kind == GONE:
            return 0


sys.exit(main())
