"""What a user can mend ends with exit code 2 and one message; what they cannot keeps its traceback."""

import pytest

from features.errors import InputError, exit_code_of


def test_success_is_exit_code_0(capsys: pytest.CaptureFixture[str]):
    assert exit_code_of(lambda: print("done")) == 0
    assert capsys.readouterr() == ("done\n", "")


def test_a_wrong_input_is_exit_code_2_and_one_message(capsys: pytest.CaptureFixture[str]):
    def command() -> None:
        raise InputError("alpha is 2, expected 0 to 1. Correct it in the task file")

    assert exit_code_of(command) == 2
    assert capsys.readouterr() == ("", "error: alpha is 2, expected 0 to 1. Correct it in the task file\n")


def test_an_interrupt_is_exit_code_130(capsys: pytest.CaptureFixture[str]):
    def command() -> None:
        raise KeyboardInterrupt

    assert exit_code_of(command) == 130
    assert "nothing half-written" in capsys.readouterr().err


def test_a_fault_of_ours_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        exit_code_of(lambda: print(1 / 0))
