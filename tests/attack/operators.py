"""Attacks on what operators see and set: dynamic settings, group ids in a terminal, files of a data directory."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord.cli.console import NAME_LENGTH_MAX
from tests.attack.rig import Attack, Result, Server
from tests.broker.test_config_values import KINDS, RECORDED, RESET
from tests.client import Client, Request, commit_errors, offset_commit

GROUPCOORD = [sys.executable, "-c", "from groupcoord.cli import main; main()"]
HOSTILE_NAMES = ("\x1b[31mred", "\x1b]0;owned\x07", "a\nb", "\u202egnol", "\x9b2J", "\r\x1b[2K", "x" * 1_000)
DATA_FILES = ("topics", "group-configs", "broker-configs", "client-metrics", "quotas", "features", "producer-ids")
PATIENCE_S = 60.0
INCREMENTAL_ALTER_CONFIGS, SHARE_GROUP_HEARTBEAT, SHARE_FETCH, METADATA = (44, 1), (76, 1), (78, 1), (3, 12)
"""API and version."""
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
SHARE_BODY = {"max_wait_ms": 20, "min_bytes": 1, "max_bytes": 1_000, "batch_size": 1, "forgotten_topics_data": []}


def _set(client: Client, kind: str, name: str, key: str, text: str | None) -> bool:
    change = {"name": key, "config_operation": SET if text is not None else DELETE, "value": text}
    resource = {"resource_type": KINDS[kind][0], "resource_name": name, "configs": [change]}
    request = Request(*INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
    return not client.ask(request)["responses"][0]["error_code"]


def set_texts(server: Server, result: Result) -> None:
    """Set every dynamic setting to every recorded text; start a share group with each accepted offset reset."""
    with server.connect() as client:
        for kind, (_, default_name, _) in KINDS.items():
            name = "orders" if kind == "topic" else default_name
            for key in RECORDED["taken"][kind]:
                for text in (*RECORDED["values"], None):
                    _set(client, kind, name, key, text)
                    result.count("texts")
        topic_id = client.ask(Request(*METADATA, METADATA_BODY))["topics"][0]["topic_id"]
        for number, text in enumerate(RECORDED["offset_resets"]):
            group_id = f"reset-{number}"
            if _set(client, "group", group_id, RESET, text):
                partition = {"partition_index": 0, "acknowledgement_batches": []}
                session = {"group_id": group_id, "member_id": MEMBER_ID, "share_session_epoch": 0, "max_records": 1}
                session["topics"] = [{"topic_id": topic_id, "partitions": [partition]}]
                client.ask(Request(*SHARE_GROUP_HEARTBEAT, HEARTBEAT_BODY | {"group_id": group_id}))
                topics = client.ask(Request(*SHARE_FETCH, SHARE_BODY | session))["responses"]
                errors = [partition["error_code"] for topic in topics for partition in topic["partitions"]]
                result.count("share groups")
                result.count("share groups that began", not any(errors))
    result.expect(result.inputs["share groups that began"] > 0, "no share group began")


def print_names(server: Server, result: Result) -> None:
    """Use terminal commands as group ids; ``groupcoord lag``, ``dump`` and the log must print them escaped."""
    with server.connect() as client:
        for name in HOSTILE_NAMES:
            assert not any(commit_errors(client.ask(offset_commit(name, "orders", {0: 1}))))
            result.count("groups")
    for words in (("lag",), ("lag", "--group", HOSTILE_NAMES[0] + "gone"), ("dump", "--partition", "0")):
        command = [*GROUPCOORD, *words, "--bootstrap-server", server.bootstrap]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S)
        text = (done.stdout + done.stderr).decode()
        result.count("bytes printed", len(text))
        bad = [line for line in text.split("\n") if not line.isprintable()]
        result.expect(not bad, f"groupcoord {words[0]} prints control characters: {bad[:1]!r}")
        if words == ("lag",):
            result.expect("x" * (NAME_LENGTH_MAX + 1) not in text, "groupcoord lag prints a name of 1,000 letters")
    result.expect(all(map(str.isprintable, server.last_words)), "there are control characters in the log")


def open_files(result: Result) -> None:
    """Replace files of a data directory by FIFOs, arrays without end and bytes: the server must fail with a line."""
    makes: dict[str, Callable[[Path], object]] = {
        "a FIFO": os.mkfifo,
        "100,000 arrays": lambda path: path.write_text("[" * 100_000),
        "no text": lambda path: path.write_bytes(b"\xff" * 100),
    }
    for name, (what, make) in itertools.product(DATA_FILES, makes.items()):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder) / f"{name}.json")
            words = [*GROUPCOORD, "serve", "--port", "0", "--data-dir", folder]
            result.count("files")
            try:
                done = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, text=True)
            except subprocess.TimeoutExpired:
                result.fault(f"{name}.json is {what}: the server starts, or waits")
                continue
            is_clear = done.returncode in (1, 2) and "Traceback" not in done.stderr and f"{name}.json" in done.stderr
            result.expect(is_clear, f"{name}.json is {what}: status {done.returncode}, {done.stderr[-500:]}")


SETTINGS, NAMES = Attack("settings", set_texts), Attack("names", print_names)
