"""Mark slow tests of the example here, as the file itself is copied by users without marks."""

import pytest

SLOW = (
    "test_the_sensitivity_is_what_the_noise_is_calibrated_to",
    "test_the_mechanism_keeps_its_promise",
)


def pytest_itemcollected(item):
    if item.name in SLOW:
        item.add_marker(pytest.mark.slow)
