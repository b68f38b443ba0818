"""The map of certified rates: rates between known bounds, and the drawing."""

import numpy as np
import pytest

from dpanalysis import plotting, theory
from figures import lmi_map


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cells")
    with pytest.MonkeyPatch.context() as patch:  # every fifth, to be quick
        patch.setattr(lmi_map, "STEP_SIZES", lmi_map.STEP_SIZES[4::5])
        patch.setattr(lmi_map, "MOMENTA", lmi_map.MOMENTA[::5])
        return lmi_map.compute("paper", jobs=1, cache=cache, progress=False)


@pytest.mark.slow
def test_rates_are_where_they_belong(tables):
    table = tables["rates"]
    assert all(len(column) == 2 * 10 * 10 for column in table.values())
    found = np.isfinite(table["certified_rate"])
    exact = table["rate_on_quadratics"]
    assert not found[exact >= 1].any() and 50 < found.sum() < (exact < 1).sum()
    assert (table["certified_rate"][found] >= exact[found] - 1e-9).all()
    assert (table["certified_rate"][found] < 1).all()
    still = found & (table["momentum"] == 0)  # gradient descent: the certificate is tight
    assert still.sum() == 14
    np.testing.assert_allclose(table["certified_rate"][still], exact[still], atol=1e-5)
    for row in (3, 57, 120, 199):  # each rate belongs to its setting
        setting = [table[name][row] for name in ("step_size", "momentum", "mu")]
        expected = theory.heavy_ball_certified_rate(*setting, lmi_map.L)
        np.testing.assert_equal(table["certified_rate"][row], expected)
        assert exact[row] == theory.heavy_ball_rate(*setting, lmi_map.L)


def test_paper_scale_is_50_by_50():
    about = lmi_map.settings("paper")
    assert len(about["step_sizes"]) == len(about["momenta"]) == 50
    quick = lmi_map.settings("quick")
    assert quick["momenta"] == about["momenta"][::2] and quick["mu"] == about["mu"]


@pytest.mark.slow
def test_the_map_can_be_drawn(tables, tmp_path):
    with plotting.style():
        figure = lmi_map.draw(tables)
        figure.savefig(tmp_path / "f.png", dpi=50)
    assert len(figure.axes) == 6 + 4
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert len(panels) == 6 and all(ax.get_xlabel() for ax in panels)
    caption = lmi_map.caption(tables, "quick")
    assert "\n\nPrivacy: nothing is run on data" in caption and "Differences from" in caption
    assert caption.count("a certificate at") == 2
