"""Which tests of the example are slow here: the file itself, which users copy, has no such mark."""

import pytest

SLOW = (
    "test_the_sensitivity_is_what_the_noise_is_calibrated_to",
    "test_the_mechanism_keeps_its_promise",
)


def pytest_itemcollected(item):
    if item.name in SLOW:
        item.add_marker(pytest.mark.slow)
