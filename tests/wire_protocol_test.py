"""docs/wire-protocol.md is the specification: its tables are those of the code."""
import os
import pathlib
import re

import protocol_vectors
import pytest

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
DOCUMENT = (SOURCE / "docs/wire-protocol.md").read_text()
SCALARS = {"bool": "bool", "std::uint8_t": "u8", "std::uint16_t": "u16", "std::int32_t": "i32", "std::uint32_t": "u32",
           "std::int64_t": "i64", "std::uint64_t": "u64", "std::string": "string", "HiddenText": "string", "Nonce": "[32]", "Share": "[32]", "Proof": "[32]", "SealHeader": "[24]",
           "SecretBytes": "[32]",
           "Verdict": "u8", "Purpose": "u16"}


def shown(type_name):
    vector = re.fullmatch(r"std::vector<(.+)>", type_name)
    return f"list of {shown(vector[1])}" if vector else SCALARS.get(type_name, type_name)


def structures(header):
    """Of base/wire: name → (type number or None, [(field, type as the document shows it)])."""
    found = {}
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", (SOURCE / "base/wire" / header).read_text(), re.S | re.M):
        number = re.search(r"kType = (\d+);", body)
        declared = dict((field, kind) for kind, field in
                        re.findall(r"^  ((?:std::)?[\w:<>]+) (\w+)(?: = [^;]+|\{\})?;", body, re.M))
        tied = re.search(r"std::tie\((.*?)\)", body, re.S)
        if tied is None:
            continue
        fields = [field.strip() for field in tied[1].split(",") if field.strip()]
        found[name] = (number and int(number[1]), [(field, shown(declared[field])) for field in fields])
    return found


def rows(heading):
    """The table rows of a section, as lists of cells."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", DOCUMENT, re.S | re.M)[1]
    return [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in section.splitlines()
            if re.match(r"\| [\w`]", line)]


@pytest.mark.parametrize("heading, header", [("Addresses of ranks", "port_address.h"), ("Agent stream", "agent_messages.h"), ("Launch stream", "launch_messages.h"),
                                             ("Control connections", "secure_channel.h"), ("Rendezvous", "rendezvous_messages.h")])
def test_the_tables_have_each_message_and_structure_with_its_fields(heading, header):
    expected = []
    for name, (number, fields) in structures(header).items():
        listed = ", ".join(f"`{field}` {kind}" for field, kind in fields) or "none"
        expected.append([str(number) if number is not None else "in others", name, listed])
    assert expected
    documented = [row for row in rows(heading) if row[0] not in ("type",)]
    missing = "\n".join("| " + " | ".join(row) + " |" for row in expected if row not in documented)
    assert not missing, f"docs/wire-protocol.md lacks these rows in its section {heading}:\n{missing}"
    superfluous = [row for row in documented if row not in expected]
    assert not superfluous


def test_each_message_of_the_tables_is_fuzzed():
    headers = ("agent_messages.h", "launch_messages.h", "secure_channel.h", "rendezvous_messages.h")
    declared = {name for header in headers for name, (number, _) in structures(header).items() if number is not None}
    fuzzed = re.search(r"^using All =\s*Messages<([\w, \n]+)>;", (SOURCE / "tests/fuzz/agent_messages_fuzz.cc").read_text(), re.M)[1]
    assert set(re.findall(r"\w+", fuzzed)) == declared


def test_the_handshake_has_its_messages():
    declared = structures("handshake.h")
    documented = {row[1]: row for row in rows("The handshake") if row[0].isdigit()}
    messages = {name: value for name, value in declared.items() if value[0] is not None}
    assert set(documented) == set(messages)
    for name, (number, fields) in messages.items():
        assert documented[name][0] == str(number)
        flat = [part for field, kind in fields
                for part in (declared["Introduction"][1] if kind == "Introduction" else [(field, kind)])]
        assert re.findall(r"`(\w+)` (\[32\]|\w+)", documented[name][3]) == flat


def test_the_vectors_are_what_the_specification_computes():
    def digits(section):
        found, name = {}, None
        for line in re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", DOCUMENT, re.S | re.M)[1].splitlines():
            begins, goes_on = re.fullmatch(r"    ([a-z ]+[a-z]) = ([0-9a-f]+)", line), re.fullmatch(r"     +([0-9a-f]+)", line)
            if begins:
                name = begins[1]
                found[name] = begins[2]
            elif goes_on and name:
                found[name] += goes_on[1]
            else:
                name = None
        return found

    for section, computed in protocol_vectors.documented().items():
        assert digits(section) == computed, section


def laid_out(header, structure):
    """The rows of a structure whose members are the fields of the wire, and how many bytes it has."""
    body = re.search(rf"^struct {structure} \{{\n(.*?)^\}};", (SOURCE / header).read_text(), re.S | re.M)[1]
    sizes = {"std::uint16_t": 2, "MessageKind": 1, "FrameKind": 1, "TrafficClass": 1, "std::uint32_t": 4, "std::uint64_t": 8,
             "std::int64_t": 8}
    offset, expected = 0, []
    for kind, field in re.findall(r"^  ([\w:]+) (\w+) =", body, re.M):
        expected.append([str(offset), str(sizes[kind]), f"`{field}`"])
        offset += sizes[kind]
    return expected, offset


def test_data_frames_and_headers_are_laid_out_as_declared():
    frame, frame_bytes = laid_out("transports/tcp/frame.h", "Frame")
    header, header_bytes = laid_out("transports/message.h", "MessageHeader")
    assert (frame_bytes, header_bytes) == (32, 96)
    assert [row[:3] for row in rows("Data connections") if row[1].isdigit() and row[2].startswith("`")] == frame + header


def test_the_kinds_of_data_frames_are_those_of_the_code():
    body = re.search(r"^enum class FrameKind .*? \{\n(.*?)^\};", (SOURCE / "transports/tcp/frame.h").read_text(), re.S | re.M)[1]
    declared = [[number, re.sub("([A-Z])", r" \1", name).strip().lower()]
                for name, number in re.findall(r"^  k(\w+) = (\d+),", body, re.M)]
    kinds = [row[:2] for row in rows("Data connections") if row[0].isdigit() and not row[1].isdigit()]
    assert kinds == declared


def test_the_limits_are_those_of_the_code():
    frame = (SOURCE / "base/wire/frame.h").read_text()
    handshake = (SOURCE / "base/wire/handshake.h").read_text()
    acceptor = (SOURCE / "base/wire/acceptor.h").read_text()
    feed = (SOURCE / "launcher/stdio/input_feed.h").read_text()
    for text, says, value in [(frame, "kMaxFrameBytes = 1u << 20", "an agent stream longer than 1 MiB + 4"),
                              (frame, "kLargestFrameBytes = 64u << 20", "none at all longer than\n64 MiB + 4"),
                              (handshake, "kMaxHandshakeBytes = 4096", "longer than 4,096 bytes"),
                              (handshake, "kMaxTermsBytes = 256", "at most 256 bytes"),
                              (handshake, "kHandshakeLimit = std::chrono::seconds(3)", "A handshake takes 3 s at most"),
                              (feed, "kWindow = 256u << 10", "256 KiB of input"),
                              (acceptor, "kMostGreetings = 64", "64 are in progress at most")]:
        assert says in text
        assert value in DOCUMENT
