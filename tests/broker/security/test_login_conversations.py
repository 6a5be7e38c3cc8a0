"""Conversations of log-ins, accepted or refused, recorded with Apache Kafka 4.4.0."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from scramp import ScramClient

from tests.broker.security.world import UNTIL_2100_MS, LoginWorld, Values, conversations, from_json
from tests.tables import as_one_test

CONVERSATIONS = conversations("login_conversations.json")
SASL_KEYS = (17, 36, 50, 51)
DELAY_MS = 100


class Replay:
    """One conversation with a broker."""

    def __init__(self, conversation: Values) -> None:
        self.world = LoginWorld()
        if conversation["name"].startswith("scram"):
            self.world.add_scram_user("carol", "carol-secret")
        self.client = self.world.connect(conversation["listener"].upper())
        self.asked = ("", 0)
        self.scram: ScramClient | None = None

    def play(self, step: Values) -> None:
        """Do a step, or compare what came with what Kafka answered."""
        getattr(self, step["do"])(step)

    def send(self, step: Values) -> None:
        self.asked = step["api"], step["version"]
        self.client.send(*self.asked, from_json(step["body"]))

    def raw(self, step: Values) -> None:
        self.client.send_frame(bytes.fromhex(step["hex"]))

    def raw_size(self, step: Values) -> None:
        self.client.connection.receive_data(struct.pack(">i", step["size"]))
        self.world.broker.handle_waiting()

    def sleep(self, step: Values) -> None:
        self.world.pass_time(step["ms"])

    def scram_token(self) -> bytes:
        assert self.scram is not None
        client: Any = self.scram
        token: str = client.get_client_final() if client.stage else client.get_client_first()
        return token.encode()

    def scram_begins(self, step: Values) -> None:
        self.scram = ScramClient([step["mechanism"]], step["username"], step["password"])
        self.send_scram()

    def send_scram(self) -> None:
        self.asked = "SaslAuthenticate", 2
        self.client.send(*self.asked, {"auth_bytes": self.scram_token()})

    def recv(self, step: Values) -> None:
        if step.get("waits"):
            self.wait()
        answer = self.client.receive(*self.asked)
        assert answer is not None
        if "text" in step:
            self.check_scram(step["text"], answer)
        expected = dict(step["body"])
        if "sasl" in expected:
            keys = [[key[field] for field in ("api_key", "min_version", "max_version")] for key in answer["api_keys"]]
            assert [key for key in keys if key[0] in SASL_KEYS] == [
                key for key in expected["sasl"] if key[0] in SASL_KEYS
            ]
            expected.pop("sasl")
        if expected.get("auth_bytes") == "$any":
            assert answer["auth_bytes"]["hex"]
            expected.pop("auth_bytes")
        if expected.get("session_lifetime") == "$until_2100":
            expected["session_lifetime"] = UNTIL_2100_MS
        for values in (answer, expected):
            if "mechanisms" in values:
                values["mechanisms"] = sorted(values["mechanisms"])
            for result in values.get("results", ()):
                result.get("credential_infos", []).sort(key=lambda info: info["mechanism"])
            values.get("results", []).sort(key=lambda result: result["user"])
        assert {name: answer[name] for name in expected} == expected

    def check_scram(self, text: str, answer: Values) -> None:
        assert self.scram is not None
        message = bytes.fromhex(answer["auth_bytes"]["hex"]).decode()
        answer["auth_bytes"] = {"hex": ""}
        if text == "verified":
            self.scram.set_server_final(message)
        else:
            assert message.endswith(f",{text}")
            self.scram.set_server_first(message)
            self.send_scram()

    def recv_raw(self, step: Values) -> None:
        frame = self.client.receive_frame()
        assert frame is not None
        if step["hex"]:  # an answer of ApiVersions to whoever knows a later version: how it begins
            assert frame[:6].hex() == step["hex"][:12]
        else:
            assert frame == b""

    def closed(self, step: Values) -> None:
        if step.get("waits") and not self.client.is_closed:
            self.wait()
        assert self.client.receive_frame() is None
        assert self.client.is_closed

    def wait(self) -> None:
        """No response is sent before the delay is over."""
        self.world.pass_time(DELAY_MS - 1)
        assert self.client.receive_frame() is None
        assert not self.client.is_closed
        self.world.pass_time(1)


@as_one_test
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation["name"])
def test_log_in_is_answered_as_kafka_does(conversation: Values) -> None:
    """Error codes, messages, tokens, lifetimes, and when the connection is closed, are those of the recording."""
    replay = Replay(conversation)
    for step in conversation["steps"]:
        replay.play(step | {"do": "scram_begins"} if step["do"] == "scram" else step)
    if conversation["steps"][-1]["do"] != "closed":
        assert not replay.client.is_closed
