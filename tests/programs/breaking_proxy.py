"""breaking_proxy.py PORT ADDRESS:PORT: passes connections to the first port on to the second. Says "listening", and for each line
that it reads breaks all that it carries, with a reset at both ends, and says how many they were. Ends with its input."""
import asyncio
import socket
import struct
import sys

carried = set()


async def pass_on(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def carry(reader, writer):
    address, port = sys.argv[2].rsplit(":", 1)
    there_reader, there_writer = await asyncio.open_connection(address, int(port))
    pair = (writer, there_writer)
    carried.add(pair)
    ways = [asyncio.ensure_future(pass_on(reader, there_writer)), asyncio.ensure_future(pass_on(there_reader, writer))]
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


async def main():
    server = await asyncio.start_server(carry, "0.0.0.0", int(sys.argv[1]))
    print("listening", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(break_all(), flush=True)
    server.close()

asyncio.run(main())
