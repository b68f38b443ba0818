"""Chen and Lee (2020): private backtracking line search.

``ITEMS`` lists its statements and what decides each.
"""

from ..claim import Paper
from ..registry import register

PAPER = register(
    Paper(
        id="002",
        authors="Chen, Lee",
        year=2020,
        title="Stochastic adaptive line search for differentially private optimization",
        setting="Add-or-remove-one neighbours, Poisson sampling.",
    )
)

ITEMS = """
Definition 1 | used | (epsilon, delta)-DP, add-or-remove-one: `privacy.epsilon`
Definition 2 | used | `audit.renyi_divergence`
Definition 3 | used | Renyi DP: `Event.rdp_cost`
Definition 4 | used | sensitivity: `PublicFacts.sum_sensitivity`
Proposition 1 | bounds-5 | valid; the tight conversion is used
Lemma 1 | bounds-1 |
Lemma 2 | 002-12 |
Lemma 3 | bounds-23 bounds-24 | composition, also of adaptively chosen events
Lemma 4 | 002-10 bounds-15 |
Lemma 5 | 002-16 bounds-26 |
Theorem 1 | 002-1 |
Theorem 2 | 002-2 |
Theorem 3 | 002-3 |
Theorem 4 | repaired: 002-4 002-5 002-6 | "Algorithm 2 satisfies RDP", without a cost: true; the costs are those of section 4.3
Algorithm 1 | 002-9 | its privacy is that of Theorems 1 to 3
Algorithm 2 | 002-4 002-5 002-6 002-8 | `methods.LineSearchSGD`; a run that ends with a failed search outputs w_{t+1} (line 23), which it has not set: here the last point found
Algorithm 3 | 002-6 | `methods.LineSearchSGD(adapt="angle")`
(2) | 002-9 | tested by `methods.LineSearchSGD`
(4) | 002-2 002-13 |
(5) | 002-3 |
(6) | used | clipping of a gradient: `clipping`
Section 4.1: a naive search costs eps_1 + max_it eps_2 | bounds-23 | an upper bound: max_it eps_2 is enough, as the threshold is public
(7), (8) | used | angles: `methods.LineSearchSGD(adapt="angle")`
(9) | used | `methods.LineSearchSGD`, the clipping norms of DP-BLSGD-AC
Section 4.2: intelligent backtracking | used | `methods.LineSearchSGD(memory=10, headroom=1.2)`: eta_0 only falls, by the minimum, so it is "sufficiently large" by the steps of the last iterations alone
Section 4.3: the budget of several orders | 002-7 002-8 |
Section 5.7: each iteration is (alpha, alpha rho)-RDP, a tenth of it for the search | open: 002-3 002-6 | composed before amplification; proved up to max_it = 10,000 for losses in [0, Delta_f] if |B| in line 6 is the public q n, and false if it is the size drawn
Section 5.1: Huberized hinge loss | used | `losses.HuberizedHinge(width=0.5)`
Section 5.3: DP-AGD, a baseline | 002-11 | the public code of a co-author, not the paper
Table 1 | drawn | `python -m figures search_accuracy`: the larger class of Adult is .7607 and of Bank .8830, as printed; IPUMS-BR and IPUMS-US are not public as used
Figure 1 | drawn | `python -m figures search_hyperparameters`; a picture without numbers
Figure 2 | 002-14 | `python -m figures search_evaluations`; a picture without numbers
Figure 3 | drawn | `python -m figures search_accuracy`: Adult and Bank; IPUMS is not public as used
Figure 4 | drawn | `python -m figures search_accuracy`: Adult and Bank; IPUMS is not public as used
Figure 5 | drawn | `python -m figures search_mlp`: the MLP on MNIST; its CNN: `python -m figures search_cnn`; Fashion-MNIST and CIFAR-10 were not at hand
Headline: the step chosen satisfies the Armijo condition with high probability | 002-15 |
Headline: the search is charged once, not for every query | holds: 002-1 002-3 | Laplace noise; Gaussian noise at a fixed max_it
Headline: (4) is a tighter bound | 002-13 |
Headline: the sparse vector pays only for queries above the threshold (introduction; section 2) | 002-18 |
Headline: without a limit a noisy search does not end, or finds too small a step (introduction; 4.1) | 002-19 |
Headline: without noise some step satisfies (2) (introduction) | standard | for a differentiable f_B and its own gradient; not at a kink of the hinge loss, nor along a mean of clipped gradients
Headline: amplification applies to gradient and search | holds: 002-4 002-10 | once, to both together
Headline: sampling relaxes the budget (introduction) | 002-17 |
Headline: no budget is needed to shrink the clipping norms | used | the decision uses released numbers only: `methods.LineSearchSGD`
Headline: subsampling greatly reduces the evaluations | 002-14 |
Headline: angles show when to raise the budget | drawn | `python -m figures search_hyperparameters`: better than never and than always, at equal spending
Headline: line search is useful at small epsilon | drawn | `python -m figures search_accuracy`
Headline: it beats DP-AGD, output perturbation (on 3 of 4 data sets, not on Bank), objective perturbation and DP-SGD in most cases | drawn | `python -m figures search_accuracy`, by the correct accounting; its caption has the finding on each rival
Headline: shrinking the clipping norms helps a little on some data (section 5.6) | drawn | `python -m figures search_accuracy search_hyperparameters`
Headline: networks train in fewer iterations | drawn | `python -m figures search_mlp`
Headline: the step sizes chosen decrease during training (section 5.7) | drawn | `python -m figures search_mlp`: not at our noise; the paper does not state its own
"""
