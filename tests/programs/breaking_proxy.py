"""breaking_proxy.py PORT ADDRESS:PORT: passes connections to the first port on to the second. Says "listening", and then answers
lines: "break" breaks all that it carries, with a reset at both ends, and says how many they were; "alter there" and "alter back"
alter one byte of what passes next in that direction, and say how many connections it had taken by then; "taken" says how many it
has taken. Ends with its input."""
import asyncio
import socket
import struct
import sys

carried = set()
taken = 0
to_alter = {}  # by direction: whoever waits for it


async def pass_on(direction, reader, writer):
    while data := await reader.read(65536):
        if direction in to_alter:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]
            to_alter.pop(direction).set_result(taken)
        writer.write(data)
        await writer.drain()


async def carry(reader, writer):
    global taken
    taken += 1
    address, port = sys.argv[2].rsplit(":", 1)
    there_reader, there_writer = await asyncio.open_connection(address, int(port))
    pair = (writer, there_writer)
    carried.add(pair)
    ways = [asyncio.ensure_future(pass_on("there", reader, there_writer)), asyncio.ensure_future(pass_on("back", there_reader, writer))]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    await asyncio.gather(*ways, return_exceptions=True)
    carried.discard(pair)
    for end in pair:
        end.close()


def break_all():
    broken = list(carried)
    for pair in broken:
        for end in pair:
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()
    return len(broken)


async def alter(direction):
    to_alter[direction] = asyncio.get_running_loop().create_future()
    return await to_alter[direction]


async def main():
    server = await asyncio.start_server(carry, "0.0.0.0", int(sys.argv[1]))
    print("listening", flush=True)
    loop = asyncio.get_running_loop()
    while words := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        if words[0] == "alter":
            print(await alter(words[1]), flush=True)
        else:
            print(taken if words[0] == "taken" else break_all(), flush=True)
    server.close()

asyncio.run(main())
