"""Tables as one test each: no case hides another, and each that fails is named."""

from __future__ import annotations

import pytest

from .tables import CasesFailed, Choice, as_one_test, check_all


def check_positive(number: int) -> None:
    """Fail for what is not above zero."""
    assert number > 0, f"{number} is not positive"


def test_all_that_fail_are_named() -> None:
    """The message has a line for each, and those that follow one are tried, too."""
    tried = []

    def check(number: int) -> None:
        tried.append(number)
        check_positive(number)

    with pytest.raises(CasesFailed) as caught:
        check_all([("minus", -1), ("one", 1), ("nought", 0)], check)

    assert tried == [-1, 1, 0]
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 3 cases fail:"
    assert lines[1].startswith("  minus: AssertionError: -1 is not positive")
    assert lines[2].startswith("  nought: AssertionError: 0 is not positive")
    assert [error.__notes__ for error in caught.value.exceptions] == [["in case minus"], ["in case nought"]]


def test_a_call_to_fail_is_a_failure_as_any_other() -> None:
    """``pytest.fail``, and ``pytest.raises`` of what raises nothing, don't end the table."""

    def check(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            1 / number

    with pytest.raises(CasesFailed, match=r"^2 of 3 cases fail:\n  1: .*DID NOT RAISE.*\n  2: .*DID NOT RAISE"):
        check_all([("1", 1), ("0", 0), ("2", 2)], check)


def test_some_cases_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--case`` leaves out what doesn't have its text; a table without any such case is skipped."""
    monkeypatch.setattr(Choice, "part", "one")
    check_all([("minus one", 1), ("nought", 0)], check_positive)
    with pytest.raises(CasesFailed, match=r"^1 of 2 cases"):
        check_all([("one", 1), ("nought", 0), ("minus one", -1)], check_positive)
    with pytest.raises(pytest.skip.Exception):
        check_all([("nought", 0)], check_positive)


def test_rows_are_called_as_pytest_would() -> None:
    """By what is given for them, by their values, or else by parameter and number; each has its own name."""

    @as_one_test
    @pytest.mark.parametrize(("left", "right"), [(1, "a"), pytest.param(2, {}, id="named"), (3, []), (True, "a")])
    @pytest.mark.parametrize("kind", [int, None, [0]], ids=[None, None, "list"])
    @pytest.mark.parametrize("flag", [True, False], ids=lambda flag: "yes" if flag else None)
    def fail(left: int, right: object, kind: object, flag: bool) -> None:
        raise ValueError("always")

    with pytest.raises(CasesFailed) as caught:
        fail()

    names = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:-1]]
    assert names[:4] == ["yes-int-1-a", "yes-int-named", "yes-int-3-right2", "yes-int-True-a"]
    assert names[4] == "yes-None-1-a"
    assert names[-1] == "False-list-True-a"
    assert len(set(names)) == 24
