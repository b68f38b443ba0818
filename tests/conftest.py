"""Hypothesis profiles and shared fixtures."""

import gc
import os

import matplotlib
import pytest
from hypothesis import HealthCheck, Phase, settings

matplotlib.use("Agg")
# Modules and tests keep many objects, which each garbage collection would scan.
gc.set_threshold(50_000, 20, 50)

settings.register_profile("dev", max_examples=50, deadline=None)
# The same examples every time: a failure means a change. The faults of tests/mutants are noticed
# with 10 of them.
settings.register_profile(
    "ci",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# Many new examples every time: before a release.
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=500)
# For old versions of the dependencies, where everything must run, and for faults, which need no
# minimal example.
settings.register_profile(
    "few",
    settings.get_profile("ci"),
    max_examples=10,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture
def fails():
    """A function that returns whether a claim fails, as soon as that is certain."""
    from dpanalysis.papers import registry

    class LeastEffort(registry.Effort):
        """A third of the cases of the quick mode: enough for an injected fault."""

        def cases(self, quick, full):
            return max(quick // 3, 2)

    def failed(name):
        paper = name.rpartition("-")[0]
        claim = next(claim for claim in registry.load(paper) if claim.id == name)
        printed_holds = claim.verdict in ("holds", "sharpened")
        evidence = []
        try:
            for each in claim.check(LeastEffort(quick=True)):
                evidence.append(each)
                if not each.holds and (each.about == "used" or printed_holds):
                    break
        except ValueError:  # refused arguments: the claim has the verdict "error"
            return True
        return registry.Outcome(claim, tuple(evidence), 0.0).failed

    return failed


@pytest.fixture
def one_torch_thread():
    """One thread and the seed 0 for PyTorch, which only tests that need it import."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_data(monkeypatch):
    """Stand-ins, even where the data sets are available."""
    monkeypatch.delenv("DPANALYSIS_DATA", raising=False)


@pytest.fixture
def made(no_data, monkeypatch, tmp_path):
    """A function that computes and draws a figure with some settings changed."""
    from dpanalysis import plotting

    def make(module, changes):
        original = module.settings
        monkeypatch.setattr(module, "settings", lambda scale: {**original(scale), **changes})
        tables = module.compute("quick", jobs=1, cache=tmp_path, progress=False)
        with plotting.style():
            module.draw(tables).savefig(tmp_path / "figure.png", dpi=40)
        caption = module.caption(tables, "quick")
        assert "\n\nPrivacy: " in caption and "\n\nDifferences from the paper: " in caption
        for table in tables.values():
            assert len({len(column) for column in table.values()}) == 1
        return tables, " ".join(caption.split())

    return make
