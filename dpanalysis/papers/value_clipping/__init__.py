"""Fang et al. (2023): gradient and value clipping.

``ITEMS`` lists its statements and what decides each.
"""

from ..claim import Paper
from ..registry import register

PAPER = register(
    Paper(
        id="004",
        authors="Fang, Li, Fan, Li",
        year=2023,
        title="Improved convergence of differential private SGD with gradient clipping",
        venue="ICLR",
        setting="Add-or-remove-one neighbours, Poisson sampling.",
    )
)

ITEMS = """
Definition 3.1 | 004-5 | weak growth: `Loss.weak_growth`
Definition 3.3 | used | (epsilon, delta)-DP, add-or-remove-one: `privacy.epsilon`
Lemma 3.2 | 004-5 |
Theorem 3.4 | 004-13 | of Abadi et al. (2016), quoted for clipped gradients; the rule makes no difference
Assumption 4.1 | used | `theory.light_tail_scale` computes rho
Algorithm 1 | used | `methods.SGD` with `clipping.Flat`, Poisson batches
Algorithm 2 | 004-10 | SGD with light-tailed noise
Algorithm 3 | 004-1 | `methods.SGD` with `clipping.Value`
Algorithm 4 | 004-20 | SGD
Proposition 4.2 | 004-10 004-18 |
Proposition 4.3 | 004-11 004-18 |
Proposition 4.4 | 004-2 004-3 004-8 004-19 |
Theorem 4.5 | repaired: 004-15 004-2 004-3 004-19 | the rate, also for gradients, with three misprints in its premises; `theory.clipped_sgd_bound` has all constants
Remark 4.1 | 004-10 004-11 | light tails without Lipschitz constants: `theory.clipped_sgd_bound`
Remark 4.2 | 004-12 |
Corollary 5.1 | 004-13 | for networks with the beta1 of the public iterate (004-4)
Remark 5.1 | not checkable | "as fast as SGD" is a timing; `python -m figures clipping_seconds` on this machine
Lemma A.1 | standard | (a + b)^2 <= 2a^2 + 2b^2
Lemma A.2 | standard | sum of i/2^i
Lemma A.3 | standard | a union of events
Lemma A.4 | standard | sub-Gaussian variables, Vershynin (2018), for E X = 0, which our text has as a part of one of the equivalent properties (X = 1 has the others); nothing is derived from its unknown constants
Lemma A.5 | standard | Harvey et al. (2019); nothing is derived from its unknown constants
Lemma A.6 | standard | Harvey et al. (2019); `theory.clipped_sgd` needs no Freedman inequality
Lemma A.7 | standard | Harvey et al. (2019); `theory.clipped_sgd` needs no Freedman inequality
Lemma A.8 | standard | maxima of sub-Gaussian variables; `theory.no_clipping_norm` has its constants
Lemma A.9 | 004-16 | from a conditional mean to a mean
Lemma A.10 | standard | Freedman's inequality, Harvey et al. (2019)
Lemma A.11 | standard | a corollary of Lemma A.10
Lemma A.12 | 004-20 | `theory.clipped_sgd_bound` has half of it
Lemma A.13 | 004-17 |
Lemma B.1 | 004-9 |
Lemma D.1 | 004-4 004-5 | Fang et al. (2021)
Table 1 | not checkable | the table is lost in our text; it lists rates of other papers
Table 2 | not checkable | seconds on a Tesla P100; `python -m figures clipping_seconds cnn_clipping` on this machine
Figure 1 | 004-7 | `python -m figures clipping_epochs cnn_clipping`; VGG16 features of CIFAR10 are not bundled
Figure 2 | drawn | `python -m figures clipping_epochs cnn_clipping`; section 6.2 has a loss at C = 10, which is not among the clip norms of section 6.1: a slip
Figure 3 | drawn | `python -m figures clipping_epochs cnn_clipping`
Figure 4 | drawn | `python -m figures clipping_synthetic`
Figure 5 | drawn | `python -m figures clipping_privacy`; C.2 says that the gap grows "as the privacy level epsilon becomes larger", while its numbers and its reason say that it grows as epsilon becomes smaller, as it does here
Headline: utility without a bias term for smooth problems | 004-12 | without light tails for full batches only (Remark 4.2)
Headline: nearly the utility of Lipschitz losses where tails are light | 004-15 004-11 | `theory.clipped_sgd_bound`
Headline: no clipping happens, with high probability | 004-8 004-11 | proved for batches of a fixed size, and for Poisson batches at delta' above 1/2
Headline: clipping gets rarer as training proceeds | drawn | `python -m figures clipping_epochs`
Headline: value clipping bounds every gradient by C | holds: 004-1 004-4 | with f_i, as section 5 prints it above Algorithm 3
Headline: value clipping is nearly as accurate for linear models, less for networks | drawn | `python -m figures clipping_epochs clipping_table`
Headline: value clipping is the fastest private method | not checkable | a timing on their machine; `python -m figures clipping_seconds` here, where it computes every norm
"""

GAPS = {
    "004-6": "The paper leaves c1 to c5 open: 004-8 and 004-15 choose them in the paper's favor.",
    "004-14": "A slip of one word in C.2, which the numbers of its paragraph correct: Figure 5.",
}
