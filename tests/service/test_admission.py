"""The bounded queue counts choices and gives every place back."""

import pytest

from engine.errors import InvalidRequestError, QueueFullError
from service.admission import Admission


def test_permit_holds_its_places_and_gives_them_back() -> None:
    admission = Admission(4)
    with admission.permit(3):
        assert admission.taken == 3
        with pytest.raises(QueueFullError, match="3 of 4 places"), admission.permit(2):
            pytest.fail("admitted past the capacity")
        with admission.permit(1):
            assert admission.taken == 4
    assert admission.taken == 0


def test_permit_is_given_back_when_its_holder_fails() -> None:
    admission = Admission(1)
    with pytest.raises(ZeroDivisionError), admission.permit(1):
        raise ZeroDivisionError
    assert admission.taken == 0


def test_permit_larger_than_everything_is_the_callers_fault() -> None:
    with pytest.raises(InvalidRequestError, match="at most 4, got 5"), Admission(4).permit(5):
        pytest.fail("admitted past the capacity")
