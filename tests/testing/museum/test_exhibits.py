"""The museum's exhibits: what each tells, how one is found, and that its history breaks a law with the bug alone."""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from types import CodeType

import pytest

from groupcoord.cli import main
from groupcoord.testing.exploring.scope import Trace
from groupcoord.testing.exploring.stage import play
from groupcoord.testing.museum import Exhibit, UnknownExhibitError, exhibit, exhibits, hunt_for
from groupcoord.testing.museum.exhibit import Plant, PlantError, changes_of, plant
from tests import plants
from tests.tables import as_one_test

PLAYED = [shown for shown in exhibits() if shown.play is not None]
PLANTED = [shown for shown in exhibits() if shown.plant is not None]
PLANTED_MIN, PLAYED_MIN = 45, 40
SAMPLE = ("KAFKA-10284", "redpanda-17673")


@as_one_test
@pytest.mark.parametrize("shown", exhibits(), ids=lambda shown: shown.id)
def test_every_exhibit_is_told(shown: Exhibit) -> None:
    """It has the fault, the conditions, the consequences, and the reports as sources."""
    for told in (shown.title, shown.room, shown.versions, shown.story, shown.history, shown.loses, shown.law):
        assert told.strip() == told != ""
    assert shown.references
    assert (shown.plant is None) == bool(shown.absent)
    assert shown.play is None or shown.plant is not None


def test_there_are_enough() -> None:
    """The required number have their bug in this package, and a short history; numbers and ids are unique."""
    assert len(PLANTED) >= PLANTED_MIN
    assert len(PLAYED) >= PLAYED_MIN
    assert [shown.number for shown in exhibits()] == list(range(1, len(exhibits()) + 1))
    assert len({shown.id.lower() for shown in exhibits()}) == len(exhibits())


def global_names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals that a function uses, with those of the functions inside it."""
    yield from (found.argval for found in dis.get_instructions(code) if found.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from global_names(constant)


@as_one_test
@pytest.mark.parametrize("shown", PLANTED, ids=lambda shown: shown.id)
def test_a_plant_fits(shown: Exhibit) -> None:
    """The target exists, its replacement has the same parameters, and uses names that the target's module has."""
    assert shown.plant is not None
    function, changes = changes_of(shown.plant)
    assert set(global_names(changes["__code__"])) <= function.__globals__.keys() | vars(builtins).keys()


@pytest.mark.parametrize(
    ("module", "function", "source", "message"),
    [
        ("groupcoord.gone", "retire", "", r"groupcoord\.gone\.retire does not exist"),
        ("groupcoord.errors", "ErrorCode.retire", "", r"groupcoord\.errors\.ErrorCode\.retire does not exist"),
        ("groupcoord.errors", "ErrorCode", "", "groupcoord.errors.ErrorCode is not a function"),
        ("groupcoord.laws", "require", "def require(holds): ...", r"takes \[.+\], its replacement \['holds'\]"),
    ],
    ids=["no module", "no method", "a class", "other parameters"],
)
def test_a_plant_that_does_not_fit(module: str, function: str, source: str, message: str) -> None:
    """A plant whose target has moved or changed fails with a message that names the target."""
    with pytest.raises(PlantError, match=message):
        plant(Plant(module, function, source))


def test_an_exhibit_is_found_by_its_reports() -> None:
    """One asks for its id or for a report, in small letters as well; a part of a name leads to what is near."""
    assert exhibit("kafka-16147") is exhibit("apache/kafka#15212") is exhibit("KAFKA-16147")
    assert exhibit("kop-380") is exhibit("KAFKA-7909")
    with pytest.raises(UnknownExhibitError, match="did you mean 'KAFKA-16147'"):
        exhibit("16147")
    with pytest.raises(UnknownExhibitError, match="museum list"):
        exhibit("KAFKA-1")


@as_one_test
@pytest.mark.parametrize("shown", PLAYED, ids=lambda shown: shown.id)
def test_a_law_breaks_with_the_bug(shown: Exhibit) -> None:
    """A history breaks a law at its end, and only with its bug."""
    assert shown.play is not None
    trace = Trace.of(shown.play)
    with pytest.MonkeyPatch.context() as monkeypatch:
        plants.plant(monkeypatch, shown.id)
        broken = play(trace).broken
    assert broken is not None
    assert broken.step >= len(trace.steps) - 2, "the history could be shorter"
    assert play(trace).broken is None


def test_the_command_plays(capsys: pytest.CaptureFixture[str]) -> None:
    """``museum play`` prints both runs step by step, and the law that the bug breaks."""
    with pytest.raises(SystemExit) as ended:
        main(["museum", "play", "redpanda-4900"])
    told = capsys.readouterr().out

    assert ended.value.code == 0
    assert "every law holds" in told
    assert "BROKEN check" in told
    assert "somebody sends DeleteGroups" in told


def test_the_command_says_what_it_can_not_do(capsys: pytest.CaptureFixture[str]) -> None:
    """An exhibit without a place here can't be played, one that isn't there can't be shown, and no name is no wish."""
    for words, why in (
        (["play", "sarama-2940"], "sarama-2940 has no place in this package: one member has one connection"),
        (["show", "KAFKA-1"], "the museum has no 'KAFKA-1'"),
        (["play"], "name one exhibit to play, or give --all"),
        (["hunt", "KAFKA-8500", "--with", "luck"], "there is no way of looking 'luck'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["museum", *words])
        assert ended.value.code == 2
        assert why in capsys.readouterr().err


@pytest.mark.slow
@as_one_test
@pytest.mark.parametrize("shown", PLAYED, ids=lambda shown: shown.id)
def test_every_bug_is_found(shown: Exhibit) -> None:
    """Exploring all histories of the same steps finds a law that each bug breaks, within a minute."""
    assert hunt_for(shown, "explore", 60.0).is_law


@pytest.mark.ci
def test_a_hunt_finds_and_says_what() -> None:
    """A searcher that knows nothing of a bug finds the law that it breaks; without time it finds nothing."""
    found = hunt_for(exhibit("redpanda-4900"), "machine", 60.0)

    assert found.is_law
    assert found.found is not None
    assert found.histories > 0


@pytest.mark.ci
@as_one_test
@pytest.mark.parametrize("name", [one.id for one in exhibits() if "member" in one.found])
def test_bugs_of_members_are_found(name: str) -> None:
    """Random lives of a member find a law that each bug of a member's side breaks."""
    assert hunt_for(exhibit(name), "member", 60.0).is_law
