"""Kuru, Birbil, Gürbüzbalaban, Yıldırım (2022): accelerated methods with Laplace noise.

``ITEMS`` lists its statements and what decides each.
"""

from ..claim import Paper
from ..registry import register

PAPER = register(
    Paper(
        id="001",
        authors="Kuru, Birbil, Gürbüzbalaban, Yıldırım",
        year=2022,
        title="Differentially private accelerated optimization algorithms",
        venue="SIAM J. Optim. 32",
        setting="Replace-one neighbours, sampling m of n without replacement, pure epsilon.",
    )
)

ITEMS = """
Definition A.1 | used | strong convexity and smoothness: `Problem.mu`, `Problem.L`, from public bounds
Definition A.2 | used | epsilon-DP, replace-one: `Budget`
Definition A.3 | used | L1 sensitivity: `PublicFacts.gradient_sensitivity`
Theorem A.1 | bounds-2 bounds-10 | the Laplace mechanism
Theorem A.2 | 001-20 |
Theorem A.3 | 001-1 bounds-11 |
Proposition 3.1 | 001-1 |
Assumption 3.2 | holds: 001-17 | for logistic regression with S_1 = 40; `RowBound`
Proposition 3.3 | 001-4 001-5 |
Proposition 3.4 | 001-3 001-6 001-26 | `python -m figures lmi_map`
Theorem 3.5 | 001-7 001-30 | for the noise of DP-SHB, the proof repaired; for all noise of mean 0 given x_t alone it is false
Theorem 4.1 | 001-9 001-32 |
Proposition 4.2 | repaired: 001-12 001-35 | of independent noise, as it says; correlated Laplace noise can be better, Gaussian noise under zCDP not
Theorem 4.3 | 001-15 | "grad f(x_t) + eta_t" is that of z_t: a slip
Remark 4.1 | 001-12 | its horizons: `python -m figures kuru_horizons`; E_0 counts as in (4.3)
Remark 4.2 | 001-13 |
Lemma B.1 | 001-25 | the last term of (B.8), in its proof, has the wrong sign, and the right one where it is used: a slip
(3.2) | used | L1 sensitivity of one record's gradient; "the change in F(x)" below it is that of its gradient
(3.3) to (3.5) | 001-1 | the cost of one iteration
(3.6), (3.7) | 001-24 |
(3.8) | 001-2 | the sign of v_t, of which only the second moment is used
(3.9) | holds: 001-2 | the dynamical system; the sign is in (3.10)
(3.10) | 001-2 |
(3.12) | holds: 001-4 | (B.1), a step of its proof, is off by a factor 2, and by d
(B.1) | refuted: 001-4 | as an equality; (3.12) does not need it
(3.13) | holds: 001-5 | with another proof
(B.4) | refuted: 001-5 | its step sum_k S_{1,k} <= S_1
(3.14) | 001-3 |
(3.15) | 001-6 |
(3.17) | 001-7 001-30 |
(3.18) | holds: 001-21 | the formula, `theory.heavy_ball_rate`; the claim judges a figure of it
(4.1) | used | the noise of a full gradient at its share of the budget: `theory.laplace_scales`
(4.2), (4.3) | 001-9 001-10 001-11 | by (4.1) and "t >= 0" the noise in E_t is that of b_{t-1}, so that b_0 has no term, and b_T no noise: a slip
(4.4) | 001-14 |
(4.5), (4.6) | 001-12 | a_{T,0} is that of (4.3), 001-10
(4.7) | used | `theory.multistage_schedule`
(4.8) | 001-15 |
(5.1) | 001-16 |
(5.2) | repaired: 001-17 | a bound, true; its first line has the wrong sign in the exponents and z for z', and z in {0, 1}^2 for {-1, 1}
Figure 1 | not checkable: 001-21 | our text has no figures; the one of the authors' repository, and ours: `python -m figures kuru_fig1`
Figure 2 | not checkable: 001-22 | our text has no figures; the one of the authors' repository, and ours: `python -m figures kuru_fig2`
Figure 3 | drawn: 001-19 001-23 001-27 001-28 001-33 | with noise that is private, and published curves: `python -m figures kuru_fig3`
Figure 4 | drawn: 001-13 001-19 | with noise that is private: `python -m figures kuru_fig4`
Headline: error bounds for any step size and momentum | 001-26 | for quadratics 001-7
Headline: averaging noisy gradients improves the privacy level | 001-36 |
Headline: sigma_T of section 3.2 is private | 001-8 |
Headline: epsilon = 1 in all runs, with L estimated from the data | 001-18 |
Headline: accelerated methods beat DP-GD at the best T | 001-27 | at the paper's size, m = n and m = 1000: `python -m figures kuru_fig3 kuru_fig4`; the claim runs a small problem
Headline: fewer iterations are better for accelerated methods | drawn: 001-27 001-33 | `python -m figures kuru_fig3 kuru_fig4`; the best T of DP-GD is 500 in the repository's curves
Headline: an even division of the budget is not optimal | 001-12 |
Headline: the optimized methods are best | drawn: 001-28 | at the paper's size: `python -m figures kuru_fig3 kuru_fig4`; the claim runs a small problem
Headline: DP-NAG-opt is robust to a small step, DP-MASG-opt is not | drawn: 001-28 | at the paper's size: `python -m figures kuru_fig3 kuru_fig4`; the claim runs a small problem
Headline: dividing the noise helps under subsampling, too | 001-13 001-38 | with noise that is private: `python -m figures kuru_fig4`
Headline: full data give a smaller error than batches | 001-29 |
Headline: a better rate costs more noise (section 3.2) | 001-31 |
Headline: the parameters that are optimal without noise are not the best with it | 001-39 |
Headline: the momentum of the best rate performs reliably under noise (section 3.2) | drawn | `python -m figures kuru_fig1`: its bound is at most 1.7 times the least
Footnote 1: the constant of C_t in the figure | 001-37 |
Headline: zCDP has a closed form without subsampling (section 6) | 001-34 | `theory.allocate_gaussian`
Headline: the published code is private | 001-19 |
"""
