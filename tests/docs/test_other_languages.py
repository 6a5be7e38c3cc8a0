"""The page for other languages: its programs in Java, Go and Node pass against a broker that they start themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import groupcoord

from .markdown import DOCS, blocks

PAGE = DOCS / "other-languages.md"
TIMEOUT_S = 600

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <parent>
    <groupId>org.springframework.boot</groupId>
    <artifactId>spring-boot-starter-parent</artifactId>
    <version>3.5.0</version>
    <relativePath/>
  </parent>
  <groupId>page</groupId>
  <artifactId>page</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.springframework.boot</groupId>
      <artifactId>spring-boot-starter-test</artifactId>
    </dependency>
    <dependency>
      <groupId>org.springframework.kafka</groupId>
      <artifactId>spring-kafka</artifactId>
    </dependency>
  </dependencies>
</project>
"""
GO_MODULE = "module orders\n\ngo 1.24\n\nrequire github.com/twmb/franz-go v1.22.2\n"
NODE_PACKAGE = {"name": "orders", "private": True, "dependencies": {"kafkajs": "^2.2.4"}}


def codes(language: str) -> list[str]:
    """Return the page's programs in a language, in order."""
    return [block.code for block in blocks(PAGE, language)]


def run(folder: Path, *words: str) -> str:
    """Run a command of a toolchain with this environment's ``groupcoord``; return its output."""
    scripts = str(Path(sys.executable).parent)
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join((scripts, os.environ["PATH"]))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 0, done.stdout
    return done.stdout


def need(*programs: str) -> None:
    """Skip the test if a program of its toolchain is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def test_the_line_that_serve_prints_is_quoted() -> None:
    """The version in the line is that of the package."""
    assert f"groupcoord {groupcoord.__version__} listening on" in PAGE.read_text("utf-8")


@pytest.mark.slow
def test_java(tmp_path: Path) -> None:
    """The tests with JUnit and with Spring pass; Maven fetches their libraries."""
    need("javac", "mvn")
    sources = tmp_path / "src" / "test" / "java" / "page"
    sources.mkdir(parents=True)
    (tmp_path / "pom.xml").write_text(POM, "utf-8")
    for name, code in zip(("Broker", "CommitTest", "ListenerTest"), codes("java"), strict=True):
        (sources / f"{name}.java").write_text(f"package page;\n\n{code}", "utf-8")

    assert "Tests run: 2, Failures: 0, Errors: 0, Skipped: 0" in run(tmp_path, "mvn", "-B", "-ntp", "test")


@pytest.mark.slow
def test_go(tmp_path: Path) -> None:
    """The test with franz-go passes."""
    need("go")
    (tmp_path / "go.mod").write_text(GO_MODULE, "utf-8")
    (code,) = codes("go")
    (tmp_path / "orders_test.go").write_text(code, "utf-8")

    assert "--- PASS: TestOrdersAreReadAfterAnError" in run(tmp_path, "go", "test", "-mod=mod", "-v", "./...")


@pytest.mark.slow
def test_node(tmp_path: Path) -> None:
    """The test with KafkaJS passes."""
    need("node", "npm")
    (tmp_path / "package.json").write_text(json.dumps(NODE_PACKAGE), "utf-8")
    (code,) = codes("js")
    (tmp_path / "orders.test.mjs").write_text(code, "utf-8")
    run(tmp_path, "npm", "install", "--no-audit", "--no-fund")

    assert "# pass 1" in run(tmp_path, "node", "--test", "--test-reporter=tap")


@pytest.mark.slow
def test_rust(tmp_path: Path) -> None:
    """The code in Rust starts a broker and reads its addresses."""
    need("rustc")
    (code,) = codes("rust")
    main = 'fn main() { let broker = Broker::start(); println!("{} {}", broker.bootstrap, broker.control); }\n'
    (tmp_path / "main.rs").write_text(code + main, "utf-8")
    run(tmp_path, "rustc", "--edition", "2021", "main.rs")
    bootstrap, control = run(tmp_path, "./main").split()

    assert bootstrap.startswith("127.0.0.1:")
    assert control.startswith("http://127.0.0.1:")
