"""An unauthenticated peer on the network: unauthenticated_peer.py ADDRESS PORT WHAT... [--secret FILE]. Does each thing once and waits until the other end
has closed; `flood` renews 1,000 silent connections until its standard input ends, and says when 65 have been closed. Says how many connections it made.

Knows the form of what is said (docs/wire-protocol.md), but no job's secret."""
import hashlib
import os
import re
import selectors
import socket
import struct
import sys

MAGIC, DATA, CONTROL = 0x63616961, 1, 2


def frame(kind, body):
    return struct.pack("<IH", 2 + len(body), kind) + body


def hello(purpose, source, to, job=0):
    return frame(201, struct.pack("<IHHHQii", MAGIC, 1, 1, purpose, job, source, to) + os.urandom(32))


def proof(transcript, secret):
    """A dialer's ConnectProof without terms."""
    before = struct.pack("<IH", 2 + 4 + 32, 203) + struct.pack("<I", 0)
    said = hashlib.blake2b(transcript + before, digest_size=32).digest()
    return before + hashlib.blake2b(b"aiacc dialer".ljust(16, b"\0") + said, key=secret, digest_size=32).digest()


class UnauthenticatedPeer:
    def __init__(self, address, port):
        self.where = (address, port)
        self.made = 0

    def connect(self):
        self.made += 1
        return socket.create_connection(self.where, timeout=30)

    def say(self, *parts):
        """Says all, and reads until the other end closes."""
        with self.connect() as link:
            try:
                for part in parts:
                    link.sendall(part)
                return b"".join(iter(lambda: link.recv(65536), b""))
            except ConnectionError:
                return b""

    def scan(self):
        self.connect().close()

    def garbage(self):
        self.say(os.urandom(5000))

    def http(self):
        self.say(b"GET / HTTP/1.1\r\nHost: you\r\n\r\n")

    def half(self):
        """Not to its end: the other end waits for the rest for three seconds, and closes."""
        self.say(hello(DATA, 0, 1)[:40])

    def huge(self):
        self.say(struct.pack("<IH", 0xffffffff, 201))

    def replay(self):
        """Of the handshake in the document, which another job once made."""
        self.say(self.recorded["hello"], self.recorded["proof"])

    def other_job(self):
        self.say(hello(DATA, 0, 1, job=0x0123456789abcdef))

    def challenged(self):
        """A connection on which the other end has proved itself, and what was said."""
        link = self.connect()
        first = hello(CONTROL, 1, 0)
        link.sendall(first)
        challenge = b""
        while len(challenge) < 4 + 68:
            part = link.recv(4 + 68 - len(challenge))
            if not part:
                break
            challenge += part
        return link, first + challenge

    def ends(self, link, last):
        with link:
            try:
                link.sendall(last)
                if link.recv(100) != b"":
                    sys.exit("an unauthenticated peer was answered")
            except ConnectionError:
                pass

    def wrong_secret(self):
        link, said = self.challenged()
        self.ends(link, proof(said, b"x" * 32))

    def reflect(self):
        link, said = self.challenged()
        self.ends(link, proof(said, b"x" * 32)[:-32] + said[-32:])

    def flood(self):
        chooser = selectors.DefaultSelector()
        chooser.register(sys.stdin, selectors.EVENT_READ)

        def renew():
            link = socket.socket()
            link.setblocking(False)
            self.made += 1
            link.connect_ex(self.where)
            chooser.register(link, selectors.EVENT_READ)

        for _ in range(1000):
            renew()
        print("flooding", flush=True)
        closed = 0
        while True:
            for key, _ in chooser.select():
                if key.fileobj is sys.stdin:
                    return
                chooser.unregister(key.fileobj)
                key.fileobj.close()
                renew()
                closed += 1
                if closed == 65:
                    print("65 were closed", flush=True)


def main():
    document, address, port, *what = sys.argv[1:]
    unauthenticated = UnauthenticatedPeer(address, int(port))
    text = open(document).read()
    vectors = re.findall(r"^    (\w+) = ([0-9a-f]+(?:\n        [0-9a-f]+)*)$", text, re.M)
    unauthenticated.recorded = {name: bytes.fromhex("".join(digits.split())) for name, digits in vectors}
    for one in what:
        getattr(unauthenticated, one)()
    print(unauthenticated.made)


main()
