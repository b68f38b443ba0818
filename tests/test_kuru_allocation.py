"""The figure of noise allocations: the order of errors, and an independent search."""

import numpy as np
import pytest
from scipy import optimize

from dpanalysis import plotting
from figures import kuru_allocation


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cells")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kuru_allocation, "SHORT", (2, 3, 5))
        patch.setattr(kuru_allocation, "horizons", lambda scale: [5, 50, 700])
        return kuru_allocation.compute("quick", jobs=1, cache=cache, progress=False)


def test_no_error_is_below_the_bound_and_uniform_noise_has_the_largest(tables):
    table = tables["errors"]
    np.testing.assert_allclose(table["optimal"], table["proved"], rtol=1e-9)
    assert (table["uniform"] > table["optimal"]).all()
    gain = kuru_allocation._gain(tables["linear_models"])
    assert (gain >= 0.0).all() and gain[tables["linear_models"]["T"] > 2].min() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("method", kuru_allocation.METHODS)
def test_the_program_finds_what_another_search_finds(method):
    """T = 3: over lower triangular C, by the simplex method from several starts."""
    found = kuru_allocation.certificate(method, 3)
    M = found.response @ found.response.T
    signs = np.array([[1, a, b] for a in (-1, 1) for b in (-1, 1)])

    def error(entries):
        C = np.zeros((3, 3))
        C[np.tril_indices(3)] = entries
        if abs(np.linalg.det(C)) < 1e-9:
            return np.inf
        X = C.T @ C
        return np.trace(M @ np.linalg.inv(X)) * np.max(((signs @ X) * signs).sum(axis=1))

    start = np.diag(1.0 / found.allocation)[np.tril_indices(3)]
    random = np.random.default_rng(0)
    best = min(
        optimize.minimize(
            error,
            start + 0.1 * random.standard_normal(6),
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 6000, "maxfev": 6000},
        ).fun
        for _ in range(4)
    )
    assert kuru_allocation.correlated(method, 3)["correlated"] <= best * (1.0 + 1e-6)
    assert best == pytest.approx(kuru_allocation.correlated(method, 3)["correlated"], rel=1e-3)


@pytest.mark.slow
def test_the_figure_can_be_drawn(tables, tmp_path):
    with plotting.style():
        kuru_allocation.draw(tables).savefig(tmp_path / "f.png", dpi=50)
    caption = kuru_allocation.caption(tables, "quick")
    assert "\n\nPrivacy: nothing is run on data" in caption and "Finding: " in caption
