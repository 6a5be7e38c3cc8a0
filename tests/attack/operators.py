"""What operators do: settings with texts of any kind, names of clients in a terminal, and files that are none."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord.cli.console import NAME_LENGTH_MAX
from tests.attack.report import Result
from tests.attack.siege import Siege
from tests.attack.target import COMMAND, Target
from tests.broker.test_config_values import KINDS, RECORDED, RESET
from tests.crash.harness import ask
from tests.crash.requests import commit_errors, offset_commit
from tests.wire.kio_client import read_response, request_frame

GROUPCOORD = [*COMMAND[:-1]]
NAMES = ("\x1b[31mred", "\x1b]0;owned\x07", "a\nb", "\u202egnol", "\x9b2J", "\r\x1b[2K", "x" * 1_000)
DATA_FILES = ("topics", "group-configs", "broker-configs", "client-metrics", "quotas", "features", "producer-ids")
PATIENCE_S = 60.0
INCREMENTAL_ALTER_CONFIGS, SHARE_GROUP_HEARTBEAT, SHARE_FETCH, METADATA = 44, 76, 78, 3
SET, DELETE = 0, 1
MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
METADATA_BODY: dict[str, Any] = {
    "topics": [{"topic_id": UUID(int=0), "name": "orders"}],
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}
HEARTBEAT_BODY: dict[str, Any] = {
    "member_id": MEMBER_ID,
    "member_epoch": 0,
    "rack_id": None,
    "subscribed_topic_names": ["orders"],
}
SHARE_BODY = {"max_wait": 20, "min_bytes": 1, "max_bytes": 1_000, "batch_size": 1, "forgotten_topics_data": []}


def _call(sock: socket.socket, api_key: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
    frame = request_frame(api_key, version, body)
    sock.sendall(len(frame).to_bytes(4, "big") + frame)
    with sock.makefile("rb") as file:
        size = file.read(4)
        return read_response(api_key, version, size + file.read(int.from_bytes(size, "big")))


def _set(sock: socket.socket, kind: str, name: str, key: str, text: str | None) -> bool:
    """Set a setting, or take it back; return True if that was done."""
    change = {"name": key, "config_operation": SET if text is not None else DELETE, "value": text}
    resource = {"resource_type": KINDS[kind][0], "resource_name": name, "configs": [change]}
    answer = _call(sock, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    return bool(answer["responses"][0]["error_code"] == 0)


def settings(siege: Siege, replay: str) -> Result:
    """Every dynamic setting gets every text that was recorded; share groups begin by each reset that is taken."""

    def attack(target: Target, result: Result) -> None:
        with target.connect() as sock:
            for kind, (_, name, _) in KINDS.items():
                for key in RECORDED["taken"][kind]:
                    for text in RECORDED["values"]:
                        _set(sock, kind, "orders" if kind == "topic" else name, key, text)
                        result.count("texts")
                    _set(sock, kind, "orders" if kind == "topic" else name, key, None)
            topic_id = _call(sock, METADATA, 12, METADATA_BODY)["topics"][0]["topic_id"]
            for number, text in enumerate(RECORDED["offset_resets"]):
                group_id = f"reset-{number}"
                if _set(sock, "group", group_id, RESET, text):
                    asked = {"group_id": group_id, "member_id": MEMBER_ID, "share_session_epoch": 0, "max_records": 1}
                    partition = {"partition_index": 0, "acknowledgement_batches": []}
                    asked["topics"] = [{"topic_id": topic_id, "partitions": [partition]}]
                    _call(sock, SHARE_GROUP_HEARTBEAT, 1, HEARTBEAT_BODY | {"group_id": group_id})
                    told = _call(sock, SHARE_FETCH, 1, SHARE_BODY | asked)["responses"]
                    result.count("share groups")
                    errors = [partition["error_code"] for topic in told for partition in topic["partitions"]]
                    result.count("that began", not any(errors))

    result = siege.run(Result("operators", "settings", replay), attack)
    if not result.inputs.get("that began"):
        result.fault("no share group began")
    return result


def names(siege: Siege, replay: str) -> Result:
    """Groups are called by commands to a terminal; ``groupcoord lag`` and ``dump`` show them, and the log does."""

    def attack(target: Target, result: Result) -> None:
        with target.connect() as sock:
            for name in NAMES:
                assert not any(commit_errors(ask(sock, offset_commit(1, name, -1, "", "orders", {0: 1}))))
                result.count("groups")
        address = f"127.0.0.1:{target.port}"
        for words in (("lag",), ("lag", "--group", NAMES[0] + "gone"), ("dump", "--partition", "0")):
            done = subprocess.run(
                [*GROUPCOORD, *words, "--bootstrap-server", address], capture_output=True, timeout=PATIENCE_S
            )
            text = (done.stdout + done.stderr).decode()
            result.count("bytes printed", len(text))
            bad = [line for line in text.split("\n") if not line.isprintable()]
            if bad:
                result.fault(f"groupcoord {words[0]} prints control characters: {bad[0][:200]!r}")
            if words == ("lag",) and "x" * (NAME_LENGTH_MAX + 1) in text:
                result.fault("groupcoord lag prints a name of 1,000 letters")
        if not all(line.isprintable() for line in target.log().split("\n")):
            result.fault("there are control characters in the log")

    return siege.run(Result("operators", "names", replay), attack)


def files(siege: Siege, replay: str) -> Result:
    """Files of the data directory are FIFOs, arrays without end, or no text: the server says so in a line and ends."""
    result = Result("operators", "files", replay)
    makes: dict[str, Callable[[Path], object]] = {
        "a FIFO": os.mkfifo,
        "100,000 arrays": lambda path: path.write_text("[" * 100_000),
        "no text": lambda path: path.write_bytes(b"\xff" * 100),
    }
    for name in DATA_FILES:
        for what, make in makes.items():
            with tempfile.TemporaryDirectory() as folder:
                make(Path(folder) / f"{name}.json")
                words = [*COMMAND, "--port", "0", "--data-dir", folder]
                result.count("files")
                try:
                    done = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, text=True)
                except subprocess.TimeoutExpired:
                    result.fault(f"{name}.json is {what}: the server starts, or waits")
                    continue
                if done.returncode not in (1, 2) or "Traceback" in done.stderr or f"{name}.json" not in done.stderr:
                    result.fault(f"{name}.json is {what}: status {done.returncode}, {done.stderr[-500:]}")
    return result
