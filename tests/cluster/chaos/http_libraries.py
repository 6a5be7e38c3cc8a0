"""Libraries for HTTP, with which clients ask replicas of the service in examples/."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from .libraries import Open

ANSWER_S = 2.0
REDIRECTS_MAX = 3

Post = Callable[[int, str, dict[str, Any]], tuple[int, dict[str, Any]]]


def post_with_http_client(way: int, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Send a request with Python's own library, on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", way, timeout=ANSWER_S)
    try:
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def post_with_requests(way: int, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask with requests, which keeps connections and knows better what a broken one is."""
    import requests

    answer = requests.post(f"http://127.0.0.1:{way}{path}", json=body, timeout=ANSWER_S, allow_redirects=False)
    return answer.status_code, answer.json()


class HttpLibrary:
    """Asks one replica, and where that sends it."""

    def __init__(self, post: Post, group: str, ways: dict[int, int], refused: Callable[[int], None]) -> None:
        self._post = post
        self._group = group
        self._ways = ways
        self._refused = refused
        self._ports = list(ways)
        self._port = self._ports[0]

    def commit(self, shard: int, position: int) -> bool:
        return self._try("/commit", {"shard": shard, "position": position}) is not None

    def position(self, shard: int) -> int | None:
        told = self._try("/position", {"shard": shard})
        return None if told is None else int(told["position"])

    def _try(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        for _ in range(REDIRECTS_MAX):
            try:
                status, told = self._post(self._ways[self._port], path, {"group": self._group, **body})
            except (OSError, http.client.HTTPException, ValueError):
                break
            if status == 200:
                return told
            self._refused(status)
            if status != 307:
                break
            self._port = int(told["location"].split(":")[2].split("/")[0])
        self._port = self._ports[(self._ports.index(self._port) + 1) % len(self._ports)]
        return None


HTTP_LIBRARIES: dict[str, Open] = {
    "http.client": partial(HttpLibrary, post_with_http_client),
    "requests": partial(HttpLibrary, post_with_requests),
}
