"""Chen and Lee (2020): private backtracking line search.

What decides each statement is in ``ITEMS``.
"""

from ..registry import Paper, register

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
Lemma 5 | 002-1 bounds-26 |
Theorem 1 | 002-1 |
Theorem 2 | 002-2 |
Theorem 3 | 002-3 |
Theorem 4 | 002-4 002-5 002-6 002-7 002-8 | "Algorithm 2 satisfies RDP", with the costs as printed
Algorithm 1 | 002-1 002-9 |
Algorithm 2 | 002-4 002-5 002-6 002-8 | `methods.LineSearchSGD`
Algorithm 3 | 002-6 | `methods.LineSearchSGD(adapt="angle")`
(4) | 002-2 002-13 |
(5) | 002-3 |
(9) | used | `methods.LineSearchSGD`, the clips of DP-BLSGD-AC
Table 1 | not checkable | IPUMS-BR and IPUMS-US are not public as used; Adult, Bank and MNIST: `python -m figures search_accuracy search_mlp`
Figure 1 | drawn | `python -m figures search_hyperparameters`; a picture without numbers
Figure 2 | 002-14 | `python -m figures search_evaluations`; a picture without numbers
Figure 3 | drawn | `python -m figures search_accuracy`: Adult and Bank; IPUMS is not public as used
Figure 4 | drawn | `python -m figures search_accuracy`: Adult and Bank; IPUMS is not public as used
Figure 5 | drawn | `python -m figures search_mlp`: the MLP on MNIST; the CNNs on MNIST, FMNIST and Cifar-10 need a GPU
Headline: the step chosen satisfies the Armijo condition with high probability | 002-15 |
Headline: the search pays once, not for every query | 002-1 002-3 |
Headline: (4) is a tighter bound | 002-13 |
Headline: amplification applies to gradient and search | 002-4 |
Headline: no budget is needed for clips that shrink | used | the decision is made from released numbers: `methods.LineSearchSGD`
Headline: subsampling greatly reduces the evaluations | 002-14 |
Headline: angles tell when to raise the budget | drawn | `python -m figures search_hyperparameters`; adapt="never" stops at a cap of iterations with budget left, so it is compared at a smaller cost
Headline: line search is useful at small epsilon | 002-15 |
Headline: beats DP-AGD, output and objective perturbation and DP-SGD | 002-11 | `python -m figures search_accuracy`: by the correct accounting, on Adult, within .6 point of them from epsilon .2 on
Headline: networks train in fewer iterations | drawn | `python -m figures search_mlp`
"""
