"""Gao and Wright (2023): second-order points of non-convex problems.

``ITEMS`` lists its statements and what decides each; our text lacks most tables.
"""

from ..claim import Paper
from ..registry import register

PAPER = register(
    Paper(
        id="003",
        authors="Gao, Wright",
        year=2023,
        title="Differentially private optimization for smooth non-convex ERM",
        setting="Replace-one neighbours; zCDP of full batches, Renyi without replacement.",
    )
)

ITEMS = """
Definition 1 | used | (eps_g, eps_H)-2NS: `methods.SecondOrder`
Definition 2 | used | empirical risk: `ERM`
Definition A.1 | used | (epsilon, delta)-DP, replace-one: `privacy.epsilon`
Definition A.2 | used | `audit.renyi_divergence`
Definition A.3 | used | Renyi DP: `Event.rdp_cost`
Definition A.4 | used | zCDP: `Event.zcdp_cost`
Definition B.1 | 003-31 | of Dwork, Roth (2014), for epsilon < 1, which it does not say, and with the sensitivity once; Theorem B.8 has both
Assumption 1 | 003-15 |
Assumption 2 | 003-1 003-5 003-15 |
Algorithm 1 | 003-2 003-4 | `methods.SecondOrder`
Algorithm 2 | 003-6 003-16 003-33 |
Algorithm 3 | 003-7 | `methods.SecondOrder(step="line_search")`
Theorem 1 | 003-2 003-3 003-4 003-35 | with T in place of the realized numbers it holds, from w0 = 0
Lemma 2 | 003-8 003-30 | (11) for the step that is taken
Remark after Lemma 2 | 003-32 | a slip: MIN_DEC is larger
Corollary 3 | 003-17 003-30 |
Theorem 4 | 003-21 003-29 | n_min lacks factors of the sensitivities; (12), the growth, has them
Theorem 5 | 003-3 003-4 003-6 003-35 |
Lemma 6 | 003-8 | its conditions are sufficient; the sentence before it calls them "necessary": a slip
Lemma 7 | 003-8 003-16 003-33 |
Theorem 8 | 003-22 003-29 | (18) like Theorem 4
Proposition A.1 | bounds-23 bounds-24 |
Proposition A.2 | bounds-24 |
Proposition A.3 | standard | post-processing
Proposition A.4 | bounds-5 | valid; the tight conversion is used
Proposition A.5 | 003-6 bounds-4 |
Proposition A.6 | bounds-6 | valid; the tight conversion is used
Proposition A.7 | bounds-1 |
Lemma B.1 | holds: 003-18 | of Kohler, Lucchi (2017), cited: exact tails in one dimension
Lemma B.2 | holds: 003-18 | of Kohler, Lucchi (2017), cited: exact tails in one dimension
Theorem B.3 | 003-18 003-23 |
Theorem B.4 | bounds-18 |
Theorem B.5 | 003-4 003-19 |
Proposition B.1 | standard | basic composition of (epsilon, delta)
Theorem B.6 | 003-25 |
Theorem B.7 | holds: 003-26 | of Dwork, Roth (2014); its corollary fails where delta' is nearly 1, and is used for delta/2
Theorem B.8 | 003-4 003-20 | its proof counts a line search, which the short step lacks: a slip
Theorem B.9 | 003-24 | its noise is that of Theorem B.8, not "B.3"; its "sqrt(rho) = O(eps d sqrt(ln(1/delta)))" has a d too many, and its proof, like that of Theorem 4, max(eps_g, eps_H^(-3/2)) for max(1/eps_g, eps_H^(-3/2)): slips
Lemma C.1 | 003-11 | with what Appendix C concludes from it
Lemma D.1 | 003-8 003-30 | Lemma 2 again
Lemma D.2 | 003-8 | Lemma 6 again
Lemma D.3 | 003-8 003-16 003-33 | Lemma 7 again; its proof is that of Lemma 6
Corollary D.4 | 003-17 003-30 | Corollary 3 again
Theorem D.5 | 003-21 003-29 | Theorem 4 again
Lemma D.6 | 003-9 |
Lemma D.7 | standard | Tao (2012), with unknown constants; those of Gaussian entries are used (003-9)
(4) | 003-1 |
(6) | 003-4 003-17 |
(8), (14) | 003-35 |
(10), (15) | 003-8 |
(11) | 003-30 | true for the step that is taken
(17) | 003-8 003-16 003-33 | (SD1) or (SD2) at a step no shorter than the fallback, minus the half that (16) leaves to the search; our text has lost the bar that says which step a failed search returns
(18) | 003-29 |
(12), (19) | 003-21 003-22 |
(22), (24) | 003-18 | (22) has "eta_g", "eta_H" for Delta_g, Delta_H: slips
(25), (26) | 003-23 | at eps_H = sqrt(M eps_g) the order alpha^-2 is right
(28) | 003-10 |
(29) | 003-19 |
Section 3.4: a product with the Hessian takes O(d), not O(d^2) | not checkable | for each record, and without the noise; how to multiply by E_k, a full matrix, in O(d) is not said, and the code of the paper forms it
Section 4: the losses and tolerances of the experiments | 003-12 003-15 | E.1 prints n = 4999 for IJCNN, which has 49,990 rows in LIBSVM; E.2 explains an entry of 2OPT-LS that is not available by a limit of subsampling, which only the methods with "-B" use: a slip
Section 4: n is large or small compared with the required sample complexity | 003-37 |
Section B.1: the noise that minimizes an objective meets the budget | 003-34 | nothing rests on it
Section E.3: the logistic loss | 003-13 | a misprint
Table 1 | drawn | `python -m figures second_order_tables`; some rows are lost in our text
Table 2 | drawn | `python -m figures second_order_tables`; most rows are lost in our text
Table 3 | drawn | `python -m figures second_order_tables`; lost in our text
Table 4 | drawn | `python -m figures second_order_tables`; lost in our text
Table 5 | drawn | `python -m figures second_order_tables`; some rows are lost in our text
Table 6 | not checkable | Hessian evaluations, lost in our text; ours are in `python -m figures second_order_tables`
Table 7 | drawn | `python -m figures second_order_tables`; some rows are lost in our text
Table 8 | not checkable | Hessian evaluations, lost in our text; ours are in `python -m figures second_order_tables`
Table 9 | drawn | `python -m figures second_order_tables`; some rows are lost in our text
Table 10 | not checkable | Hessian evaluations, lost in our text; ours are in `python -m figures second_order_tables`
Table 11 | drawn | `python -m figures second_order_tables`; some rows are lost in our text
Table 12 | not checkable | Hessian evaluations, lost in our text; ours are in `python -m figures second_order_tables`
Headline: the cost rho of the steps that a run took is its privacy level | 003-3 | Theorem 1; "an overestimate of the actual privacy level"
Headline: a tighter sensitivity of the query of the search | open: 003-7 | 003-7 proves it; it is below that of losses in [0, B], 2 B/n, where B_g times the length of the largest step is below B
Headline: matches the sample complexity of DP-GD, d alpha^-2 | 003-21 003-24 | `python -m figures second_order_complexity`
Headline: an iteration complexity of O(alpha^-2) | 003-17 003-8 | T by (6), with (10) of order min(eps_g^2, eps_H^3)
Headline: the mini-batch version keeps the complexity | 003-24 |
Headline: the tests find second-order points | 003-12 | `python -m figures second_order_saddle` has an instance where curvature matters
Headline: line search, batches and two phases speed it up | drawn | `python -m figures second_order_tables`
Headline: two phases retain the guarantees (introduction) | 003-36 | of privacy they do: 003-35
Headline: batches of DP-TR need alpha^-2, too (introduction) | not checkable | the analysis of DP-TR is in another paper
Headline: fewer iterations than DP-TR, and a lower final loss | 003-27 | depends on G and M, which the paper does not give
Headline: 2OPT-LS consistently outperforms DP-TR | 003-28 | on loose solutions at epsilon = 1
Headline: faster than DP-TR in runtime | not checkable | depends on their machine and code; seconds of both methods here: `python -m figures second_order_tables`
Headline: few Hessian evaluations are needed | drawn | `python -m figures second_order_tables`
"""

GAPS = {"003-14": "code of the authors, which the paper does not mention"}
