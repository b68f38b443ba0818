"""Without PyTorch, Module raises an ImportError that says what to install."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["torch"] = None
import dpanalysis as dpa
try:
    dpa.problems.Module(None, None, None)
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_module_says_what_to_install():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert "torch==2.13.0 or newer" in run.stdout
