"""Xia et al. (2023): per-sample adaptive clipping.

``ITEMS`` lists its statements and what decides each; our text lacks the appendix.
"""

from ..claim import Paper
from ..registry import register

PAPER = register(
    Paper(
        id="000",
        authors="Xia, Shen, Yao, Fu, Xu, Xu, Fu",
        year=2023,
        title="Differentially private learning with per-sample adaptive clipping",
        venue="AAAI",
        setting="Add-or-remove-one neighbours, Poisson sampling.",
    )
)

ITEMS = """
Definition 1 | used | (epsilon, delta)-DP, add-or-remove-one: `privacy.epsilon`
Assumption 1 | 000-10 | (L0, L1)-smoothness, as needed for the one step of Lemma 1
Assumption 2 | used | bounded deviation of the samples' gradients (000-3)
Algorithm 1 | 000-8 | `methods.SGD` with `clipping.PerSampleAdaptive`, Poisson batches
Theorem 1 | 000-1 000-8 000-9 |
Theorem 2 | not checkable: 000-11 | its bound is lost in our text; the claim tests ours, with the printed step size
Corollary 1 | not checkable | the statement is lost in our text
Lemma 1 | 000-10 |
Lemma 2 | 000-2 000-3 |
Discussion of Lemma 1: the first term is of order eta times the norm of grad f, if that is at least tau0/(1 - tau1) | standard | as said: each <grad f, g> is at least 0 there, their mean is the square of that norm, and w at least 1/(2 norm + 1)
Lemma 3 | not checkable | in the appendix, which our text lacks
Lemma 4 | not checkable | in the appendix, which our text lacks
Lemma 5 | not checkable | in Appendix A, which our text lacks; `theory.psac_theorem2` does not need it
Lemma 6 | not checkable | in Appendix B, which our text lacks; `theory.psac_theorem2` needs no lower bound on T
Remark 1 | not checkable: 000-4 | lost in our text; it compares the assumptions as Table 1 does
Remark 2 | 000-5 | the orders; 000-11 tests a bound with all constants
Figure 1 | drawn | `python -m figures clipping_gradients cnn_gradients` (MNIST with $DPANALYSIS_DATA; no numbers are printed)
Figure 2 | 000-2 | `python -m figures clipping_gradients`
Figure 3 | 000-7 | `python -m figures clipping_gradients cnn_gradients`; the r and the batch of the figure are not stated, and with others the order is reversed
Figure 4 | 000-13 | its numbers; `python -m figures clipping_heatmaps cnn_heatmaps`: an MLP on a full grid, a CNN on a smaller one
Table 1 | 000-5 | `python -m figures clipping_lazy`; the assumption in its row of Auto-S is not needed (000-4)
Table 2 | drawn | `python -m figures clipping_table cnn_table`: MNIST, with linear models, an MLP and a CNN; Fashion-MNIST, CIFAR10, imagenette and CelebA are not bundled
Table 3 | not checkable | roberta-base on GLUE: neither the model nor the data are bundled; as printed, DP-PSAC is best except on MNLI-m, where Auto-S is (by .48 and .17 points)
Headline: privacy without tuning a clip norm | holds: 000-1 000-9 | C only rescales the step size, which remains to be tuned, as does r; 000-9 judges the constants of Theorem 1; an accountant replaces them
Headline: a non-monotonic weight, near 1 for small gradients | 000-12 |
Headline: the updates of Auto-S stay large at the end | not checkable | an intuition, which does not say how small the gradients get: a sample moves the sum by half of C or more down to norm r, and by at most C/r times the norm
Headline: solves the lazy region problem better than Auto-S | drawn | `python -m figures clipping_lazy`, in a setting of ours: the simulation is in Appendix C, which our text lacks; as r tends to 0 DP-PSAC moves 1/a + 1/b times as fast as Auto-S between opposite gradients of norms a and b, so more slowly if both exceed 2
Headline: small gradients say little about the batch gradient | drawn | `python -m figures clipping_gradients` (Figure 1)
Headline: a smaller deviation from the true batch gradient | 000-7 |
Headline: a lower non-vanishing bound than NSGD and Auto-S | 000-5 |
Headline: converges to a stationary point | 000-6 |
Headline: accuracy depends less on r than on C | 000-13 | `python -m figures clipping_heatmaps`
Headline: outperforms or matches others on vision and language | drawn | `python -m figures cnn_table`: in our runs on MNIST the rules do not differ by the published advantage; in the other rows of Table 2, except that of CIFAR10, the published differences exceed the published spreads, and their data are not bundled
Headline: a lower level of variance than Auto-S | drawn | `python -m figures cnn_table`: five runs per rule, whose deviations do not distinguish the rules; in Table 2 that of DP-PSAC is smaller in five rows and equal in two
"""
