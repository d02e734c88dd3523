"""The test vectors of docs/wire-protocol.md for the handshake and for protected connections, computed from the specification and
from the standards that it names: nothing of aiacc's, and no library but Python's own BLAKE2b."""
import hashlib
import struct

P25519 = 2**255 - 19
MASK = 0xffffffff


def x25519(scalar, u):
    """RFC 7748, 5."""
    k = bytearray(scalar)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    k = int.from_bytes(k, "little")
    x1 = int.from_bytes(u, "little") & (1 << 255) - 1
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in range(254, -1, -1):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b = (x2 + z2) % P25519, (x2 - z2) % P25519
        da, cb = (x3 - z3) * a % P25519, (x3 + z3) * b % P25519
        x3, z3 = (da + cb) ** 2 % P25519, x1 * (da - cb) ** 2 % P25519
        aa, bb = a * a % P25519, b * b % P25519
        e = (aa - bb) % P25519
        x2, z2 = aa * bb % P25519, e * (aa + 121665 * e) % P25519
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P25519 - 2, P25519) % P25519).to_bytes(32, "little")


def siphash(key, data):
    """SipHash-2-4, 8 bytes."""
    full = (1 << 64) - 1
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573]

    def rotated(x, by):
        return (x << by | x >> (64 - by)) & full

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & full
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & full
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & full
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & full
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 255
    rounds(4)
    return struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])


def chacha_rounds(state):
    x = list(state)

    def quarter(a, b, c, d):
        for first, second, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[first] = (x[first] + x[second]) & MASK
            x[third] ^= x[first]
            x[third] = (x[third] << by | x[third] >> (32 - by)) & MASK

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for row in range(4):
            quarter(row, 4 + (row + 1) % 4, 8 + (row + 2) % 4, 12 + (row + 3) % 4)
    return x


CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")


def chacha20(key, nonce, counter, length):
    """RFC 8439, 2.4: key stream."""
    out = b""
    while len(out) < length:
        state = [*CONSTANTS, *struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
        out += struct.pack("<16I", *((a + b) & MASK for a, b in zip(state, chacha_rounds(state))))
        counter += 1
    return out[:length]


def hchacha20(key, nonce):
    x = chacha_rounds([*CONSTANTS, *struct.unpack("<8I", key), *struct.unpack("<4I", nonce)])
    return struct.pack("<8I", *x[:4], *x[12:])


def poly1305(key, data):
    """RFC 8439, 2.5."""
    r = int.from_bytes(key[:16], "little") & 0x0ffffffc0ffffffc0ffffffc0fffffff
    total = 0
    for at in range(0, len(data), 16):
        total = (total + int.from_bytes(data[at:at + 16] + b"\1", "little")) * r % ((1 << 130) - 5)
    return (total + int.from_bytes(key[16:], "little") & (1 << 128) - 1).to_bytes(16, "little")


def padded(data):
    return data + bytes(-len(data) % 16)


def chacha20_poly1305_tag(key, nonce, additional):
    """RFC 8439, 2.8, of no plain text."""
    return poly1305(chacha20(key, nonce, 0, 32), padded(additional) + struct.pack("<QQ", len(additional), 0))


def aes256(key, block):
    """FIPS 197: one block."""
    def times(a, b):
        result = 0
        while b:
            result ^= a if b & 1 else 0
            a = a << 1 ^ (0x11b if a & 128 else 0)
            b >>= 1
        return result

    def substituted(value):
        turned = result = next((other for other in range(256) if times(value, other) == 1), 0)
        for _ in range(4):
            turned = (turned << 1 | turned >> 7) & 255
            result ^= turned
        return result ^ 0x63

    box = [substituted(value) for value in range(256)]
    words = [list(key[at:at + 4]) for at in range(0, 32, 4)]
    constant = 1
    for i in range(8, 60):
        word = list(words[-1])
        if i % 8 == 0:
            word = [box[b] for b in word[1:] + word[:1]]
            word[0] ^= constant
            constant = times(constant, 2)
        elif i % 8 == 4:
            word = [box[b] for b in word]
        words.append([a ^ b for a, b in zip(word, words[i - 8])])

    def with_key(state, number):
        return [b ^ k for b, k in zip(state, sum(words[4 * number:4 * number + 4], []))]

    state = with_key(block, 0)
    for number in range(1, 15):
        state = [box[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if number < 14:
            state = [times(state[4 * (i // 4) + i % 4], 2) ^ times(state[4 * (i // 4) + (i + 1) % 4], 3) ^
                     state[4 * (i // 4) + (i + 2) % 4] ^ state[4 * (i // 4) + (i + 3) % 4] for i in range(16)]
        state = with_key(state, number)
    return bytes(state)


def aes_gmac(key, nonce, additional):
    """NIST SP 800-38D, of no plain text."""
    h = int.from_bytes(aes256(key, bytes(16)), "big")
    y = 0
    blocks = padded(additional) + struct.pack(">QQ", 8 * len(additional), 0)
    for at in range(0, len(blocks), 16):
        x, z, v = y ^ int.from_bytes(blocks[at:at + 16], "big"), 0, h
        for bit in range(127, -1, -1):
            z ^= v if x >> bit & 1 else 0
            v = v >> 1 ^ (0xe1 << 120 if v & 1 else 0)
        y = z
    mask = int.from_bytes(aes256(key, nonce + b"\0\0\0\1"), "big")
    return (y ^ mask).to_bytes(16, "big")


def keyed(secret, data, size=32):
    return hashlib.blake2b(data, key=secret, digest_size=size).digest()


def labelled(text):
    return text.encode().ljust(16, b"\0")


def frame(kind, fields):
    return struct.pack("<IH", 2 + len(fields), kind) + fields


def string(text):
    return struct.pack("<I", len(text)) + text.encode()


def numbers(first, count=32):
    return bytes(range(first, first + count))


def handshake(version):
    """Vectors by their names in the document."""
    secret = key = numbers(0)
    said = b""

    def proof_of(label, so_far):
        return keyed(key, labelled(label) + hashlib.blake2b(said + so_far, digest_size=32).digest())

    def proved(kind, label, fields):
        unsealed = struct.pack("<IH", 2 + len(fields) + 32, kind) + fields
        return unsealed + proof_of(label, unsealed)

    fields = struct.pack("<IHHHQii", 0x63616961, 1, version, 1, 0x0123456789abcdef, 3, 1) + numbers(0x40)
    vectors = {"secret": secret}
    if version == 1:
        vectors["hello"] = said = frame(201, fields)
        vectors["challenge"] = proved(202, "aiacc listener", struct.pack("<H", 1) + numbers(0x80))
        said += vectors["challenge"]
    else:
        base = (9).to_bytes(32, "little")
        vectors["hello"] = said = frame(201, fields + x25519(numbers(0x60), base))
        vectors["share"] = frame(206, struct.pack("<H", 2) + numbers(0x80) + x25519(numbers(0xa0), base))
        said += vectors["share"]
        agreed = x25519(numbers(0x60), x25519(numbers(0xa0), base))
        vectors["key of the proofs"] = key = proof_of("aiacc agreement", agreed)
    vectors["proof"] = proved(203, "aiacc dialer", string("terms"))
    said += vectors["proof"]
    vectors["verdict"] = proved(204, "aiacc verdict", b"\0" + string("agreed"))
    said += vectors["verdict"]
    vectors["key to the listener"] = proof_of("aiacc key up", b"")
    vectors["key to the dialer"] = proof_of("aiacc key down", b"")
    return vectors


def records(kind, key):
    """`aiacc`, and then the end, as they go to the listener."""
    lengths = keyed(key, labelled("aiacc lengths"), 16)
    out = b""
    if kind == "encrypted":
        preface = numbers(0, 24)
        out, stream_key, inner = preface, hchacha20(key, preface[:16]), preface[16:]
    for number, (plain, tag) in enumerate([(b"aiacc", 0), (b"", 3)]):
        if kind == "encrypted":
            nonce = struct.pack("<I", number + 1) + inner
            one_time = chacha20(stream_key, nonce, 0, 32)
            block = bytes(a ^ b for a, b in zip(bytes([tag]) + bytes(63), chacha20(stream_key, nonce, 1, 64)))
            hidden = bytes(a ^ b for a, b in zip(plain, chacha20(stream_key, nonce, 2, len(plain))))
            # As libsodium pads it.
            covered = block + hidden + bytes((0x10 - 64 + len(plain)) & 15) + struct.pack("<QQ", 0, 64 + len(plain))
            mac = poly1305(one_time, covered)
            inner = bytes(a ^ b for a, b in zip(inner, mac[:8]))
            body = block[:1] + hidden + mac
        else:
            body = plain
        length = struct.pack("<I", len(body))
        out += length + siphash(lengths, struct.pack("<Q", number) + length)
        if kind != "encrypted":
            nonce = struct.pack("<QI", number, 0)
            out += aes_gmac(key, nonce, body) if kind == "aes" else chacha20_poly1305_tag(key, nonce, body)
        out += body
    return out


def documented():
    """Section of the document → its vectors, in hexadecimal."""
    handshakes = {name: value.hex() for name, value in handshake(2).items()}
    old = {name: value.hex() for name, value in handshake(1).items()}
    key = bytes.fromhex(handshakes["key to the listener"])
    return {"The handshake": handshakes, "Version 1 of the handshake": old,
            "Data connections": {"encrypted to the listener": records("encrypted", key).hex(),
                                 "proved by aes to the listener": records("aes", key).hex(),
                                 "proved by poly to the listener": records("poly", key).hex()}}


if __name__ == "__main__":
    for section, vectors in documented().items():
        print("## " + section)
        for name, digits in vectors.items():
            line, rest = f"    {name} = " + digits[:112 - len(name)], digits[112 - len(name):]
            while line:
                print(line)
                line, rest = ("        " + rest[:112] if rest else ""), rest[112:]
