"""Every reason has a sentence, and those that only a person can end say what to do."""

import pytest

from controlplane.domain.reasons import EXPLANATIONS, Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained_in_a_sentence(reason: Reason) -> None:
    explanation = EXPLANATIONS[reason]
    assert explanation.sentence.endswith(".")
    assert explanation.sentence[0].isupper()
    assert not explanation.hint or explanation.hint[0].isupper()


@pytest.mark.parametrize("reason", [r for r in Reason if EXPLANATIONS[r].permanent])
def test_what_only_a_person_can_mend_says_how(reason: Reason) -> None:
    assert EXPLANATIONS[reason].hint
