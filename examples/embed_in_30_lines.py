"""The coordinator behind a transport of one's own: JSON lines over TCP, in 30 lines.

A crew of workers shares the rooms of a house. Each worker connects, joins the group and asks for its share; the first
one is made leader and deals the rooms out. The host below is all the embedding there is: requests in, answers out; the
timers are ``AsyncCoordinator``'s. Any program can talk to it, in any language, without a Kafka client.

    pip install .
    python examples/embed_in_30_lines.py
"""

import asyncio
import json

import attrs

from groupcoord import Config, GroupCoordinator
from groupcoord.aio import AsyncCoordinator
from groupcoord.messages import Heartbeat, JoinGroup, JoinProtocol, SyncAssignment, SyncGroup

TO_REQUEST = {
    "join": lambda f: JoinGroup("crew", f["member"], "work", (JoinProtocol("deal", b""),), 10_000, 10_000),
    "sync": lambda f: SyncGroup("crew", f["generation"], f["member"], assignments=to_assignments(f["shares"])),
    "beat": lambda f: Heartbeat("crew", f["generation"], f["member"]),
}


def to_assignments(shares):
    return tuple(SyncAssignment(member, share.encode()) for member, share in shares.items())


class Host:
    def __init__(self):
        config = Config(group_initial_rebalance_delay_ms=200)
        self.coordinator = AsyncCoordinator(GroupCoordinator(config=config))

    async def serve(self, reader, writer):
        async for line in reader:
            fields = json.loads(line)
            response = await self.coordinator.ask(TO_REQUEST[fields["do"]](fields))
            writer.write(json.dumps(attrs.asdict(response, recurse=False), default=bytes.decode).encode() + b"\n")


# ---------------------------------------------------------------- somebody who uses it


ROOMS = ["kitchen", "bathroom", "attic", "cellar", "hall"]


async def work(name: str, port: int) -> None:
    """One worker: join, let the leader deal, say what to do."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(**fields: object) -> dict:
        writer.write(json.dumps(fields).encode() + b"\n")
        return json.loads(await reader.readline())

    asked = await ask(do="join", member="")  # the first answer only hands out a member id (KIP-394)
    joined = await ask(do="join", member=asked["member_id"])
    me, generation = joined["member_id"], joined["generation_id"]
    members = [member_id for member_id, *_ in joined["members"]]  # empty unless this worker leads
    shares = {member: " ".join(ROOMS[i :: len(members)]) for i, member in enumerate(members)}
    synced = await ask(do="sync", member=me, generation=generation, shares=shares)
    alive = await ask(do="beat", member=me, generation=generation)
    role = "leads and" if members else "follows and"
    print(f"{name} {role} cleans: {synced['assignment']} (heartbeat: error {alive['error_code']})")
    writer.close()
    await writer.wait_closed()


async def main() -> None:
    """Serve on a free port, and let three workers do their work."""
    host = Host()
    async with host.coordinator:
        server = await asyncio.start_server(host.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await asyncio.gather(*(work(name, port) for name in ("Ann", "Ben", "Cleo")))
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
