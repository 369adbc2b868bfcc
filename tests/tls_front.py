"""TLS in front of a server that has none: `python tls_front.py CERT KEY PORT HOST TARGET_PORT`."""

from __future__ import annotations

import asyncio
import ssl
import sys
from contextlib import suppress


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(cert: str, key: str, port: str, host: str, target: str) -> None:
    """Forward bytes both ways, until the process is killed."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, int(target))
        except OSError:  # the server is down, and so is this connection
            writer.close()
            return
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with await asyncio.start_server(forward, host, int(port), ssl=context) as front:
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        await front.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
