"""Coordinator in an event loop: ``await coordinator.ask(request)``, one timer, and asynchronous log stores.

    async with AsyncCoordinator(GroupCoordinator()) as coordinator:
        joined = await coordinator.ask(JoinGroup("crew", protocols=(JoinProtocol("deal", b""),)))

Programs without asyncio use :mod:`groupcoord.coordinator.threads`.
"""

from groupcoord.aio.coordinator import AsyncCoordinator as AsyncCoordinator
from groupcoord.aio.log_store import (
    AsyncLogStore as AsyncLogStore,
    AsyncOwnedStore as AsyncOwnedStore,
    TaskLogStore as TaskLogStore,
    ThreadLogStore as ThreadLogStore,
)
