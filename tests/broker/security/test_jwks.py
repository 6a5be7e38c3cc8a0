"""Signed tokens: which are believed, by which keys, and how keys come and go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from jwt.algorithms import ECAlgorithm

from groupcoord.broker.security.oauthbearer import (
    FETCH_PAUSE_S,
    Bearer,
    ClaimChecks,
    InvalidTokenError,
    KeySet,
    signed_validator,
)
from groupcoord.errors import ConfigError
from tests.broker.security.world import NOW_MS, LoginWorld

NOW_S = NOW_MS // 1000
GOOD: dict[str, Any] = {"sub": "dan", "iat": NOW_S, "exp": NOW_S + 60, "aud": "kafka", "iss": "https://issuer"}
FIRST, SECOND = (generate_private_key(SECP256R1()) for _ in range(2))


def write_keys(path: Path, **keys: EllipticCurvePrivateKey) -> str:
    sets = [ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": name} for name, key in keys.items()]
    path.write_text(json.dumps({"keys": sets}))
    return path.as_uri()


def signed(key: Any = FIRST, key_id: str | None = "first", algorithm: str = "ES256", **changed: Any) -> str:
    claims = {name: value for name, value in (GOOD | changed).items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": key_id} if key_id else None)


class Validator:
    """Validator that accepts tokens signed with the first key."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.now_s = 0.0
        self.keys = KeySet(write_keys(self.path, first=FIRST), 3_600, lambda: self.now_s)
        checks = ClaimChecks(lambda: NOW_MS, clock_skew_ms=30_000)
        self.validate = signed_validator(self.keys, checks, ("kafka", "other"), "https://issuer")

    def wait_for_keys(self) -> None:
        assert self.keys._fetching is not None
        self.keys._fetching.join()


@pytest.fixture
def validator(tmp_path: Path) -> Validator:
    return Validator(tmp_path)


def test_a_signed_token_is_believed(validator: Validator) -> None:
    """It gives the name and expiry; a token without a key id uses the only key."""
    expected = Bearer("dan", (NOW_S + 60) * 1000)

    assert validator.validate(signed()) == expected
    assert validator.validate(signed(key_id=None)) == expected
    assert validator.validate(signed(exp=NOW_S - 29)).user == "dan"  # the issuer's clock may be off


@pytest.mark.parametrize(
    "token",
    [
        signed(SECOND),
        signed(SECOND, "second"),
        signed("secret-that-is-long-enough-to-be-one", algorithm="HS256"),
        signed(None, algorithm="none"),
        signed(aud="nobody"),
        signed(aud=None),
        signed(iss="https://other"),
        signed(exp=NOW_S - 31),
        signed(exp=None),
        signed(iat=NOW_S + 31),
        signed(nbf=NOW_S + 31),
        signed(sub=None),
        signed(sub=" "),
        signed()[:-3],
        "abc",
    ],
)
def test_other_tokens_are_not(validator: Validator, token: str) -> None:
    """Wrong key, no signature, wrong audience or issuer, expired, or without a subject."""
    with pytest.raises(InvalidTokenError):
        validator.validate(token)


def test_keys_are_fetched_again(validator: Validator) -> None:
    """When a token names one that isn't known, but not each time; and when they are old."""
    write_keys(validator.path, second=SECOND)
    token = signed(SECOND, "second")
    for age_s in (FETCH_PAUSE_S - 1, FETCH_PAUSE_S):
        validator.now_s = age_s
        assert (validator.keys._fetching is None) is (age_s <= FETCH_PAUSE_S)
        with pytest.raises(InvalidTokenError):
            validator.validate(token)
    validator.wait_for_keys()
    assert validator.validate(token).user == "dan"

    write_keys(validator.path, first=FIRST)
    validator.now_s = 4_000
    assert validator.validate(token).user == "dan"  # nobody waits for the new ones
    validator.wait_for_keys()
    assert validator.validate(signed()).user == "dan"


def test_keys_that_can_not_be_fetched_again_stay(validator: Validator, caplog: pytest.LogCaptureFixture) -> None:
    """The old keys stay valid, and the failure is logged."""
    validator.path.write_text("nonsense")
    validator.now_s = 4_000
    assert validator.validate(signed()).user == "dan"
    validator.wait_for_keys()

    assert validator.validate(signed()).user == "dan"
    assert "could not be fetched again" in caplog.text


@pytest.mark.parametrize("content", [None, "nonsense", "[]", '{"keys": []}'])
def test_a_server_does_not_start_without_keys(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        LoginWorld({"sasl.oauthbearer.jwks.endpoint.url": path.as_uri()})


def test_clients_log_in_with_signed_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With keys, a signed token is accepted; an unsecured one is refused, for a reason in the server's log."""
    world = LoginWorld({"sasl.oauthbearer.jwks.endpoint.url": write_keys(tmp_path / "keys.json", first=FIRST)})
    answers = []
    for token in (signed(), signed(None, algorithm="none")):
        client = world.connect()
        client.shake_hands("OAUTHBEARER")
        answers.append(client.show(f"n,,\x01auth=Bearer {token}\x01\x01".encode()))

    assert [answer["auth_bytes"]["hex"] for answer in answers] == ["", b'{"status":"invalid_token"}'.hex()]
    assert answers[0]["session_lifetime"] == 60_000
    assert "log-in from /127.0.0.1 failed: OAUTHBEARER as '': The specified alg value is not allowed" in caplog.text
