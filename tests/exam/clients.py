"""Report cards: consumers of many clients, as their own documentation shows them, each put through the exam.

``python -m tests.exam.clients [--jobs 2] [--only REGEX] [--out FOLDER] [CLIENT…]`` builds what has to be built outside
of the checkout (needs Go, Node.js or a JDK and Maven, and package registries), examines, and tells each failure with
its story; with ``--out`` there is a page of each, and what ``python -m tests.exam.report_cards FOLDER`` needs.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from attrs import frozen

from groupcoord.testing.exams import Plan, Result, examine
from groupcoord.testing.exams.examination import exam_page, in_lines
from tests.exam.report_cards import card_of
from tests.peers import registries
from tests.peers.suite import UnavailableError

PROGRAMS = Path(__file__).with_name("programs")
ARGUMENTS = ("{bootstrap}", "{group}", "{topic}", "{output}")
WITH_PROTOCOL = (*ARGUMENTS, "{protocol}")
SMALL_JVM = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m", "-cp")


@frozen
class ExaminedClient:
    """A client's consumer.

    Attributes:
        command: builds it in a folder, if it has to be built, and returns how it is started.
        wanted_by: the file below ``programs`` that says which version is wanted, and what stands before it; no file:
            the name of a Python package.
        protocol: which one it speaks.
    """

    command: Callable[[Path], Sequence[str]]
    wanted_by: tuple[str, str]
    protocol: str = "classic"


def in_python(name: str, arguments: Sequence[str] = ARGUMENTS) -> Callable[[Path], Sequence[str]]:
    return lambda _: (sys.executable, str(PROGRAMS / name), *arguments)


def in_node(name: str) -> Callable[[Path], Sequence[str]]:
    """Return what installs packages of npm, and starts a program that needs them."""

    def command(cache: Path) -> Sequence[str]:
        folder = copied("node", cache)
        registries.need("npm", "node")
        registries.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], folder)
        return "node", str(folder / name), *ARGUMENTS

    return command


def in_go(name: str, *words: str) -> Callable[[Path], Sequence[str]]:
    def command(cache: Path) -> Sequence[str]:
        folder = copied("go", cache)
        registries.need("go")
        registries.run(["go", "build", "-mod=mod", "-o", f"{name}.program", f"./{name}"], folder)
        return str(folder / f"{name}.program"), *words, *ARGUMENTS

    return command


def in_java(project: str, program: str) -> Callable[[Path], Sequence[str]]:
    """Return what builds a project with Maven, and starts one of its classes."""

    def command(cache: Path) -> Sequence[str]:
        folder = copied(project, cache)
        registries.need("mvn", "java")
        registries.run(["mvn", "-q", "compile", "dependency:copy-dependencies"], folder)
        return *SMALL_JVM, f"{folder}/target/classes:{folder}/target/dependency/*", program, *WITH_PROTOCOL

    return command


def copied(project: str, cache: Path) -> Path:
    return Path(shutil.copytree(PROGRAMS / project, cache / project, dirs_exist_ok=True))


OF_CONFLUENT = in_python("of_confluent_kafka.py", WITH_PROTOCOL)
OF_JAVA = in_java("java", "OfKafkaClients")
OF_SPRING = in_java("spring", "service.OfSpringKafka")

CONFLUENT = ("", "confluent-kafka")
KAFKA_GO = ("go/go.mod", "segmentio/kafka-go v")
KAFKA_CLIENTS = ("java/pom.xml", "<artifactId>kafka-clients</artifactId>\n      <version>")
SPRING_BOOT = ("spring/pom.xml", "<artifactId>spring-boot-starter-parent</artifactId>\n    <version>")

CLIENTS: dict[str, ExaminedClient] = {
    "confluent-kafka": ExaminedClient(OF_CONFLUENT, CONFLUENT),
    "confluent-kafka-consumer": ExaminedClient(OF_CONFLUENT, CONFLUENT, "consumer"),
    "kafka-python": ExaminedClient(in_python("of_kafka_python.py"), ("", "kafka-python")),
    "aiokafka": ExaminedClient(in_python("of_aiokafka.py"), ("", "aiokafka")),
    "kafkajs": ExaminedClient(in_node("of_kafkajs.js"), ("node/package.json", '"kafkajs": "')),
    "platformatic-kafka": ExaminedClient(
        in_node("of_platformatic.js"), ("node/package.json", '"@platformatic/kafka": "')
    ),
    "sarama": ExaminedClient(in_go("sarama"), ("go/go.mod", "IBM/sarama v")),
    "franz-go": ExaminedClient(in_go("franz_go"), ("go/go.mod", "twmb/franz-go v")),
    "kafka-go-read": ExaminedClient(in_go("kafka_go", "read"), KAFKA_GO),
    "kafka-go-commit": ExaminedClient(in_go("kafka_go", "commit"), KAFKA_GO),
    "java": ExaminedClient(OF_JAVA, KAFKA_CLIENTS),
    "java-consumer": ExaminedClient(OF_JAVA, KAFKA_CLIENTS, "consumer"),
    "spring-kafka": ExaminedClient(OF_SPRING, SPRING_BOOT),
}
"""What is examined, by name."""


def version_of(name: str) -> str:
    """Return the version of a client; for Spring Kafka that of Spring Boot, which brings it."""
    file, before = CLIENTS[name].wanted_by
    if not file:
        return version(before)
    found = re.search(re.escape(before) + r"(\d[\w.-]*)", (PROGRAMS / file).read_text("utf-8"))
    if found is None:
        raise ValueError(f"{file} says nothing of {name}")
    return found[1]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.exam.clients")
    parser.add_argument("client", nargs="*", default=list(CLIENTS), help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    for name in given.client:
        client = CLIENTS[name]
        try:
            command = client.command(registries.default_cache().with_name("exam"))
        except UnavailableError as missing:
            print(f"{name}: not examined: {missing}", flush=True)
            continue
        results: list[Result] = []
        for result in examine(Plan(command, protocol=client.protocol), given.only, jobs=given.jobs):
            results.append(result)
            if not result.is_passed:
                print(f"{name}: FAILED {result.scenario.name} ({result.seconds:.0f} s)", flush=True)
                print(*in_lines(result), sep="\n", flush=True)
        passed = sum(result.is_passed for result in results)
        print(f"{name}: {passed} of {len(results)} passed", flush=True)
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            given.out.joinpath(f"{name}.html").write_text(exam_page(results, " ".join(command)), "utf-8")
            card = card_of(name, version_of(name), client.protocol, results)
            given.out.joinpath(f"{name}.json").write_text(json.dumps(card), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
