"""Xia et al. (2023): per-sample adaptive clipping.

What decides each statement is in ``ITEMS``; the appendix is not in the text that we have.
"""

from ..registry import Paper, register

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
Assumption 1 | 000-10 | (L0, L1)-smoothness, as the one step of Lemma 1 needs it
Assumption 2 | 000-3 000-4 | bounded deviation of the samples' gradients
Algorithm 1 | 000-8 | `methods.SGD` with `clipping.PerSampleAdaptive`, Poisson batches
Theorem 1 | 000-1 000-8 000-9 |
Theorem 2 | 000-11 | constants are lost in our text
Corollary 1 | 000-12 | the statement is lost in our text
Lemma 1 | 000-10 |
Lemma 2 | 000-2 000-3 |
Lemma 3 | not checkable | in the appendix, which our text lacks
Lemma 4 | not checkable | in the appendix, which our text lacks
Lemma 5 | not checkable | in Appendix A, which our text lacks; `theory.psac_theorem2` does without
Lemma 6 | not checkable | in Appendix B, which our text lacks; `theory.psac_theorem2` needs no least T
Remark 1 | not checkable | lost in our text; it compares the assumptions as Table 1 does (000-4)
Remark 2 | 000-5 000-11 |
Figure 1 | drawn | `python -m figures clipping_gradients` (MNIST with $DPANALYSIS_DATA; no numbers are printed)
Figure 2 | 000-2 | `python -m figures clipping_gradients`
Figure 3 | 000-7 | `python -m figures clipping_gradients`; the r of the figure is not stated
Figure 4 | drawn | `python -m figures clipping_heatmaps`: an MLP; the published CNN needs a GPU for its 75 x 5 runs
Table 1 | 000-4 000-5 | `python -m figures clipping_lazy`
Table 2 | drawn | `python -m figures clipping_table`: MNIST, linear and MLP; ResNet9, SimCLRv2 and CelebA need a GPU and data that are not bundled
Table 3 | not checkable | roberta-base on GLUE: needs a GPU, and data that are not bundled
Headline: privacy without tuning a clip norm | 000-1 000-9 |
Headline: small gradients say little of the batch's | drawn | `python -m figures clipping_gradients` (Figure 1)
Headline: a smaller deviation from the true batch gradient | 000-7 |
Headline: a lower non-vanishing bound than NSGD and Auto-S | 000-5 |
Headline: converges to a stationary point | 000-6 |
Headline: accuracy depends less on r than on C | drawn | `python -m figures clipping_heatmaps` (Figure 4)
Headline: outperforms or matches others on vision and language | not checkable | published differences are of the size of their spread; `python -m figures clipping_table` for what a CPU can train
"""
