"""Kafka's own tools, command by command: what they print of a broker, and what Apache Kafka 4.4.0 made them print.

    KAFKA_LIBS=FOLDER python -m tests.clients.kafka_tools

writes down anew what a real broker makes them print. FOLDER has the jars of Kafka and of ``kafka-tools``.
"""

from __future__ import annotations

import json
import lzma
import re
import shlex
import subprocess
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from groupcoord.conformance.client import Client
from groupcoord.conformance.sockets import SocketServer
from tests.clients.beside import PROGRAMS
from tests.ports import free_port
from tests.processes import ServerProcess
from tests.storage.real_broker import ask, format_directory, java, running as running_broker

FOLDER = Path(__file__).parent / "tools"
COMMANDS, ANSWERS, DIFFERENCES = FOLDER / "commands.txt", FOLDER / "answers.jsonl.xz", FOLDER / "differences.toml"
LOG_PARTITIONS = 4
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Of both: so that there are ACLs, which keep nobody from anything."""
OF_ONE_BROKER = {
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
TOOLS = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-console-share-consumer": "consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": "DelegationTokenCommand",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "streams.StreamsGroupCommand",
    "kafka-streams-application-reset": "StreamsResetter",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
}
FILES = {
    "NONE": "",
    "DELETE": json.dumps({"version": 1, "partitions": [{"topic": "compacted", "partition": 0, "offset": 1}]}),
    "DELETE_PLAIN": json.dumps({"version": 1, "partitions": [{"topic": "plain", "partition": 0, "offset": 2}]}),
    "DELETE_TOO_MUCH": json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 99}]}),
    "MOVE": json.dumps({"version": 1, "partitions": [{"topic": "plain", "partition": 0, "replicas": [1]}]}),
    "RESET": "plain,0,3\n",
    "TOPICS": json.dumps({"version": 1, "topics": [{"topic": "plain"}]}),
}
CHANCE = (
    (r"[ \t]+", " "),
    (r"^ at .*\n", ""),
    (r"(?<=\})(?=\{|Processed)", "\n"),
    (r"(?<=TopicId: )\S+|(?<=Topic ID: )\S+|(?<=Cluster ID: )\S+|(?<=ClusterId: )\S+", "ID"),
    (r'(?<="topicId":")[^"]*', "ID"),
    (r"127\.0\.0\.1:\d+|localhost:\d+|127\.0\.0\.1 \d+", "ADDRESS"),
    (r"\b(listener\S*|port|log\.dirs?)=\S+", "ITS OWN"),
    (r'(?<="logDir":")[^"]*|(?<="log_dirs":\[")/[^"]*', "FOLDER"),
    (r"(?<=-)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "UUID"),
    (r"console-consumer-\d+", "console-consumer-NUMBER"),
    (r"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d+\]", "[TIME]"),
    (r"\b1[78]\d{11}\b", "TIME"),
    (r"(?<=TIME )\d+(?= \S+-\d+ ?$)", "DURATION"),
    (r"(?<=Epoch: )\d+|(?<=HighWatermark: )\d+|(?<=A{22} )\d+", "NUMBER"),
    (r"(?<=Valid states are: ).*|(?<=only supports operations ).*", "IN ANY ORDER"),
)
"""What is another each time, and what takes its place."""


@frozen
class Printed:
    """Result of a command. Attributes: command: its line in ``commands.txt``. status: its exit status. lines: its
    output without random parts, sorted, since tools iterate over hash maps.
    """

    command: str
    status: int
    lines: tuple[str, ...]


@frozen
class Difference:
    """Lines of a command that may differ.

    Attributes:
        command: a part of the command, as a regular expression.
        kafka: lines that only Apache Kafka brings about, as regular expressions.
        here: lines that only groupcoord brings about.
        status: whether the status may differ as well.
        gap: what the page of gaps says of it.
    """

    command: str
    gap: str
    kafka: tuple[str, ...] = ()
    here: tuple[str, ...] = ()
    status: bool = False

    def is_about(self, command: str) -> bool:
        """Return whether a command may differ in this way."""
        return re.search(self.command, command) is not None


def normalized(printed: str) -> tuple[str, ...]:
    """Return what a tool printed without what chance decides, and columns as wide as they are."""
    for pattern, word in CHANCE:
        printed = re.sub(pattern, word, printed, flags=re.MULTILINE)
    return tuple(sorted(line.strip() for line in printed.splitlines() if line.strip()))


class Tools:
    """Kafka's tools in one process of Java.

    Args:
        bootstrap: the broker that they are about.
        folder: where files lie that commands name.
    """

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        for name, text in FILES.items():
            (folder / name).write_text(text)
        host, _, port = bootstrap.rpartition(":")
        self._answered: dict[str, Any] = {}
        self._client = Client(SocketServer(host, int(port)), "tools")
        self._process = subprocess.Popen(
            java("-Dorg.slf4j.simpleLogger.defaultLogLevel=off", str(PROGRAMS / "KafkaTools.java")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, line: str) -> Printed:
        if line.startswith("send "):
            return self._send(line)
        command, _, read = line.partition(" < ")
        tool, *words = shlex.split(command)
        places = {"BROKER": self._bootstrap} | {name: str(self._folder / name) for name in FILES}
        words = [places.get(word, word) for word in words]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join([f"org.apache.kafka.tools.{TOOLS[tool]}", *words, read]) + "\n")
        self._process.stdin.flush()
        status, _, printed = self._process.stdout.readline().partition("\t")
        return Printed(line, int(status), normalized(printed.replace("\\n", "\n").replace("\\\\", "\\")))

    def _send(self, line: str) -> Printed:
        """Send a request, so that groups have members while tools look at them."""
        _, api, version, body = line.split(" ", 3)
        body = re.sub(r'"ANSWERED (\w+)"', lambda found: json.dumps(self._answered[found[1]]), body)
        self._answered = ask(self._client, api, int(version), json.loads(body))
        told = (self._answered.get("error_code"), self._answered.get("error_message"))
        return Printed(line, 0, tuple(text for text in told if text is not None))

    def close(self) -> None:
        """End the process."""
        self._client.close()
        self._process.kill()
        self._process.communicate()


def read_commands() -> list[str]:
    return [line for line in COMMANDS.read_text().splitlines() if not line.startswith("#")]


def run_all(bootstrap: str, folder: Path) -> Iterator[Printed]:
    """Run all commands, one after the other, with the files that they name in a folder."""
    tools = Tools(bootstrap, folder)
    try:
        for line in read_commands():
            yield tools.run(line)
    finally:
        tools.close()


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Run a real broker; yield its address."""
    properties, port = folder / "server.properties", free_port()
    settings = "".join(f"{key}={value}\n" for key, value in {**SETTINGS, **OF_ONE_BROKER}.items())
    format_directory(folder / "kafka", properties, port, LOG_PARTITIONS, settings)
    with running_broker(java("kafka.Kafka", str(properties)), port, folder / "broker.log"):
        yield f"127.0.0.1:{port}"


@contextmanager
def groupcoord(folder: Path) -> Iterator[str]:
    """Run the server; yield its address."""
    words = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    partitions = {"offsets.topic.num.partitions": LOG_PARTITIONS}
    with ServerProcess(folder / "groupcoord", settings=partitions, words=words) as server:
        yield server.bootstrap


def read_answers() -> list[Printed]:
    """Return what Apache Kafka made the tools print."""
    with lzma.open(ANSWERS, "rt") as file:
        told = [json.loads(line) for line in file]
    return [Printed(entry["command"], entry["status"], tuple(entry["lines"])) for entry in told]


def write_answers(answers: list[Printed]) -> None:
    """Note what Apache Kafka made the tools print."""
    with lzma.open(ANSWERS, "wt", preset=9 | lzma.PRESET_EXTREME) as file:
        file.writelines(json.dumps(asdict(answer)) + "\n" for answer in answers)


def read_differences() -> list[Difference]:
    entries = tomllib.loads(DIFFERENCES.read_text())["difference"]
    return [Difference(**{key: _frozen(value) for key, value in entry.items()}) for entry in entries]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def differing(theirs: Printed, ours: Printed, permitted: list[Difference]) -> list[str]:
    """Return what differs and isn't permitted, line by line, with nothing where all is as it must be."""
    own = [entry for entry in permitted if entry.is_about(theirs.command)]
    only_theirs, only_ours = Counter(theirs.lines) - Counter(ours.lines), Counter(ours.lines) - Counter(theirs.lines)
    told = []
    if theirs.status != ours.status and not any(entry.status for entry in own):
        told.append(f"status {ours.status} instead of {theirs.status}")
    for sign, lines, patterns in (
        ("-", only_theirs, [pattern for entry in own for pattern in entry.kafka]),
        ("+", only_ours, [pattern for entry in own for pattern in entry.here]),
    ):
        told += [f"{sign} {line}" for line in lines.elements() if not any(re.fullmatch(one, line) for one in patterns)]
    return [theirs.command, *(f"    {line}" for line in told)] if told else []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, kafka(Path(directory)) as address:
        write_answers(list(run_all(address, Path(directory))))
