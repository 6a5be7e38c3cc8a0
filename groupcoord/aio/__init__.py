"""Coordinator in an event loop: ``await coordinator.ask(request)``, one timer, and asynchronous log stores.

    async with AsyncCoordinator(GroupCoordinator()) as coordinator:
        joined = await coordinator.ask(JoinGroup("crew", protocols=(JoinProtocol("deal", b""),)))

Programs without asyncio use :mod:`groupcoord.coordinator.threads`.
"""

from groupcoord.aio.coordinator import AsyncCoordinator
from groupcoord.aio.log_store import AsyncLogStore, AsyncOwnedStore, TaskLogStore, ThreadLogStore

__all__ = ["AsyncCoordinator", "AsyncLogStore", "AsyncOwnedStore", "TaskLogStore", "ThreadLogStore"]
