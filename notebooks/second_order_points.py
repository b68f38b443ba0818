# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How much data does a private second-order point need?
#
# **You learn** what a private second-order point is, how much data it takes to guarantee one, and
# what happens at a real saddle.
#
# A point is an $(\epsilon_g, \epsilon_H)$-2NS if
# $\|\nabla f\| \le \epsilon_g$ and $\lambda_{\min}(\nabla^2 f) \ge -\epsilon_H$: nearly
# stationary, and not a saddle worth leaving. `methods.SecondOrder` searches for one privately:
# noisy gradient steps while the noisy gradient is long, then steps along the most negative
# curvature of a noisy Hessian.
#
# Every step decreases $f$ by a known amount, so there are at most $T$ steps, and $T$ determines the
# noise. The noise must be small relative to the tolerances. It is proportional to $1/n$, which
# gives $n_{\min}$. The paper states it up to constants,
# $\tilde O(d\,\rho^{-1/2}\alpha^{-2})$ for an $(\alpha, \sqrt{M\alpha})$-2NS;
# `theory.sample_complexity` has the constants.

# %%
import math
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np

import dpanalysis as dpa
from dpanalysis import methods, privacy, theory
from dpanalysis.papers.second_order.printed import printed_target

EPSILON, DELTA, STRENGTH = 1.0, 1e-6, 1e-3
budget = dpa.Budget(EPSILON, delta=DELTA)
rho = privacy.epsilon_to_zcdp(EPSILON, DELTA)
constants = theory.second_order_constants(row_norm=1.0, strength=STRENGTH)
print(f"epsilon = {EPSILON}, delta = {DELTA}: rho = {rho:.4f}; {constants}")


def target(alpha, d=54, **options):
    """What the answer itself must satisfy: (alpha, sqrt(M alpha)), with probability .95."""
    given = {"rho": rho, "guarantee": True, **options}
    return theory.SecondOrderTarget(alpha, math.sqrt(constants.M * alpha), constants, d, **given)


def n_min(wanted, step="short"):
    return theory.sample_complexity(wanted, theory.best_shares(wanted, step)).n


# %% [markdown]
# ## The shares that the paper does not specify
#
# Noise may take the shares $c, c_1, c_2$ of the tolerances; the line search requires the decrease
# $c_g, c_H$. Larger shares allow more noise, but make steps shorter and $T$ larger. Choosing them
# is a geometric program, so the best shares can be computed. They are the defaults of
# `methods.SecondOrder`.
#
# *Printed* means the sensitivities of the paper: $2\sqrt d B_H/n$ for the Hessian, although
# $\sqrt2 B_H/n$ holds for a linear predictor with a convex loss, noise above the diagonal as
# large as on it, and line searches whose noise grows with the longest step that is tried.

# %%
given = {
    "short": theory.Shares(0.1, 0.25, 0.1),
    "line_search": theory.Shares(0.1, 0.25, 0.1, 0.35, 0.2),
}
print(f"{'alpha = .06, d = 54':27s} {'T':>4} {'gradient':>10} {'Hessian':>10} {'search':>10}")
for step in given:
    for printed in (True, False):
        wanted = printed_target(target(0.06)) if printed else target(0.06)
        for name, shares in ("given", given[step]), ("best", theory.best_shares(wanted, step)):
            _, T, *parts = theory.sample_complexity(wanted, shares)
            label = f"{step}, {'printed' if printed else 'sharp'}, {name}"
            print(f"{label:27s} {T:4d}" + "".join(f"{part:11,.0f}" for part in parts))

# %% [markdown]
# Each column is the n that one kind of noise requires; the largest is $n_{\min}$. With the true
# sensitivity the Hessian is cheap, and the gradient dominates. A line search takes more data than
# short steps: its guarantee pays for the noise of the search. In practice longer steps make up for
# this, but the worst case does not account for them.
#
# ## Dependence on $\alpha$, $d$ and $\epsilon$

# %%
LINES = {"short": "#0072B2", "line_search": "#D55E00"}
alphas, dimensions = np.geomspace(0.01, 0.5, 9), np.array([2, 8, 32, 128, 512, 2048, 8192])
epsilons = np.array([0.2, 0.5, 1.0, 2.0, 5.0])
asked = [
    ("alpha", alphas, [target(alpha) for alpha in alphas]),
    ("d", dimensions, [target(0.1, d=int(d)) for d in dimensions]),
    (
        "epsilon",
        epsilons,
        [target(0.1, rho=privacy.epsilon_to_zcdp(e, DELTA)) for e in epsilons.tolist()],
    ),
]
fig, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained", sharey=True)
gains = {}
for ax, (name, values, targets) in zip(axes, asked):
    for step, color in LINES.items():
        ours = np.array([n_min(wanted, step) for wanted in targets])
        theirs = np.array([n_min(printed_target(wanted), step) for wanted in targets])
        ax.loglog(values, theirs, ":", color=color, label=f"{step}, printed sensitivities")
        ax.loglog(values, ours, color=color, label=f"{step}, sharp")
        gains[name, step] = theirs / ours
    ax.set(xlabel=name)
    for n in (49_990, 495_141):
        ax.axhline(n, color="0.7", lw=0.8, zorder=0)
slope = n_min(target(0.5)) * (alphas / 0.5) ** -theory.sample_exponent("DP-TR")
axes[0].loglog(alphas, slope, "-.", color="#009E73", label="slope of DP-TR, height unknown")
for n, data in ((49_990, "ijcnn1"), (495_141, "Covertype")):
    axes[0].text(alphas[0], n, data, color="0.5", va="bottom")
axes[0].set(ylabel="$n_{min}$", title="d = 54, epsilon = 1")
axes[1].set(title="alpha = .1, epsilon = 1")
axes[2].set(title="alpha = .1, d = 54", xticks=epsilons, xticklabels=epsilons)
axes[2].minorticks_off()
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()
growth = [
    math.log(n_min(how(target(0.1, d=8 * 8192))) / n_min(how(target(0.1, d=8192))), 8)
    for how in (printed_target, lambda wanted: wanted)
]
print("printed over sharp n_min:")
for (name, step), gain in gains.items():
    print(f"  along {name:8s} {step:12s} {gain.min():5.1f} to {gain.max():5.1f}")
print(f"large d: n_min grows like d^{growth[0]:.2f} as printed, d^{growth[1]:.2f} sharp")
assert 0.9 < growth[0] <= 1.0 and growth[1] <= 0.5

# %% [markdown]
# The order $d\,\alpha^{-2}$ of the paper suffices; for linear predictors, so does
# $\sqrt d\,\alpha^{-2}$.
# DP-TR falls like $\alpha^{-7/4}$; the paper gives no constants for it, so its line has a slope
# but no height.
#
# ## What real data can guarantee
#
# The smallest $\alpha$ that is guaranteed, and the gradient at $w = 0$, where every run starts. The
# rows are scaled to norm at most 1.

# %%
at_hand = bool(os.environ.get("DPANALYSIS_DATA"))


def load(name):
    data = dpa.datasets.load(name)
    penalty = dpa.regularizers.GemanMcClure(STRENGTH)
    bound = dpa.RowBound(2, 1.0, "clip")
    return dpa.ERM(data.X, data.y, dpa.losses.Logistic(), penalty, bound)


def smallest_alpha(n, d, step="short", how=lambda wanted: wanted):
    """The alpha with n_min = n, by bisection in the logarithm."""
    low, high = 1e-3, 1e2
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        enough = n_min(how(target(middle, d=d)), step) <= n
        low, high = (low, middle) if enough else (middle, high)
    return high


sizes = {"ijcnn1": (49_990, 22), "all of Covertype": (495_141, 54)}
problems = {}
if at_hand:
    problems = {name: load(name) for name in ("ijcnn1", "covertype")}
    sizes["covertype, as loaded"] = problems["covertype"].n, problems["covertype"].d
promised = {}
print(f"{'':22s} {'n':>8s} {'d':>3s} {'short':>7s} {'printed':>8s} {'line search':>12s}")
for name, (n, d) in sizes.items():
    promised[name] = smallest_alpha(n, d)
    others = smallest_alpha(n, d, how=printed_target), smallest_alpha(n, d, "line_search")
    print(f"{name:22s} {n:8,d} {d:3d} {promised[name]:7.3f} {others[0]:8.3f} {others[1]:12.3f}")
for data, eps_g, eps_H in [
    ("Covertype", 0.06, 0.245),
    ("Covertype", 0.03, 0.173),
    ("ijcnn1", 0.04, 0.2),
    ("ijcnn1", 0.02, 0.141),
]:
    d = 54 if data == "Covertype" else 22
    n = n_min(theory.SecondOrderTarget(eps_g, eps_H, constants, d, rho, guarantee=True))
    print(f"the paper's ({eps_g}, {eps_H}) on {data} takes {n:,}")
for name, problem in problems.items():
    start = np.linalg.norm(problem.gradient(np.zeros(problem.d)))
    print(f"{name}: gradient at 0 has norm {start:.3f}")

# %% [markdown]
# The experiments of the paper use $\epsilon_H = \sqrt\alpha$, as if $M$ were 1; that is hardly
# easier, as the gradient dominates. Of its four tolerances only the loose one of Covertype is
# guaranteed, by short steps on all of the data with the sharp sensitivities. And where the gradient
# at 0 is already below the guaranteed $\alpha$, as for 79,222 records of Covertype, the guarantee
# is empty.
#
# ## What runs do
#
# Actual runs are far from the worst case. Below are the paper's loose tolerances.

# %%
if not problems:  # two clouds of the size of ijcnn1
    rng = np.random.default_rng(0)
    y = np.where(rng.random(49_990) < 0.1, 1.0, -1.0)
    X = 0.3 * y[:, None] + rng.normal(size=(49_990, 22))
    penalty, bound = dpa.regularizers.GemanMcClure(STRENGTH), dpa.RowBound(2, 1.0, "clip")
    problems = {"clouds": dpa.ERM(X, y, dpa.losses.Logistic(), penalty, bound)}


def run(problem, method, seed=0, w0=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that n is below n_min, as intended here
        return dpa.minimize(problem, method, budget, w0=w0, rng=seed, record=("objective",))


looked = 0.0
for name, problem in problems.items():
    eps = (0.06, 0.245) if name == "covertype" else (0.04, 0.2)
    for step in LINES:
        for two_phase in (False, True):
            result = run(problem, methods.SecondOrder(*eps, step=step, two_phase=two_phase))
            history, w = result.history, result.w[0]
            gradient = np.linalg.norm(problem.gradient(w))
            lowest = np.linalg.eigvalsh(problem.hessian(w))[0]
            hessians = history["hessians"][-1, 0]
            looked = max(looked, hessians)
            print(
                f"{name:9s} {step:11s} {'two phases' if two_phase else 'one phase':10s} "
                f"{result.iterations:3d} iterations, {hessians:.0f} Hessian; true gradient "
                f"{gradient:.4f} for {eps[0]}, smallest eigenvalue {lowest:+.4f} for {-eps[1]}"
            )
            assert lowest >= -STRENGTH / 2

# %% [markdown]
# ## Why these runs do not test curvature
#
# The logistic loss is convex, and the second derivative of the penalty $\lambda w^2/(1 + w^2)$ is
# at least $-\lambda/2$. With $\lambda = 10^{-3}$ no eigenvalue is below $-0.0005$ anywhere, while
# the tests use $-0.141$ to $-0.245$. The methods could skip the Hessian, and spend half of the
# budget on something else. A test is informative only if $\lambda > 2\epsilon_H$.
#
# ## A saddle
#
# Two copies of one feature share its weight at $(1, 1, 0, \ldots)$. The loss depends only on
# $w_1 + w_2$, but the concave part of the penalty prefers one weight to two: along $(1, -1)$ the
# curvature is $-\lambda/2$. The point is stationary for rows $y\,(u/2, u/2, \text{noise})$ and
# $\lambda = u/(1 + e^u)$.

# %%
U, D = 1.35, 5
LAMBDA = U / (1.0 + math.exp(U))


def saddle_problem(n):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    rest = rng.normal(size=(n, D - 2))
    rest *= math.sqrt(1.0 - 0.5 * U**2) / np.linalg.norm(rest, axis=1, keepdims=True)
    X = np.column_stack([0.5 * U * y, 0.5 * U * y, rest])
    penalty = dpa.regularizers.GemanMcClure(LAMBDA)
    return dpa.ERM(X, y, dpa.losses.Logistic(), penalty, dpa.RowBound(2, 1.0, "clip"))


eps, start = (0.05, 0.1), np.r_[1.0, 1.0, np.zeros(D - 2)]
problem = saddle_problem(30_000)
bent = theory.second_order_constants(1.0, LAMBDA)
wanted = theory.SecondOrderTarget(*eps, bent, D, rho, gap=problem.value(start))
needed = theory.sample_complexity(wanted, theory.best_shares(wanted))
print(f"lambda = {LAMBDA:.3f}; a guarantee takes T = {needed.iterations:,} and n = {needed.n:,}")
fig, ax = plt.subplots(figsize=(6.8, 3.8), layout="constrained")
for name, method, color in [
    ("gradients only", methods.SecondOrder(0.05, 10.0), "0.5"),
    ("short steps", methods.SecondOrder(*eps, two_phase=True), LINES["short"]),
    (
        "line search",
        methods.SecondOrder(*eps, step="line_search", two_phase=True),
        LINES["line_search"],
    ),
]:
    right, stopped, seeds = 0, 0, 10
    for seed in range(seeds):
        result = run(problem, method, seed, start)
        objective, w = result.history["objective"][:, 0], result.w[0]
        stopped += result.history["second_order_point"][-1, 0] > 0
        shares = result.plan.shares
        right += bool(
            np.linalg.norm(problem.gradient(w)) <= (1 + shares.c1) * eps[0]
            and np.linalg.eigvalsh(problem.hessian(w))[0] >= -(1 + shares.c) * eps[1]
        )
        k = np.arange(len(objective))
        ax.plot(k + 1, objective, color=color, lw=0.9, label=name if seed == 0 else None)
        along = np.append(result.history["smallest_eigenvalue"][1:, 0] < -method.eps_H, False)
        ax.plot(k[along] + 1, objective[along], "o", color=color, ms=4)
        ax.plot(k[-1] + 1, objective[-1], "s", color=color, ms=4)
    print(f"{name:15s} stopped in {stopped} of {seeds} runs, at a second-order point in {right}")
ax.set(
    xscale="log", xlabel="iteration + 1", ylabel="objective", title="from the saddle, n = 30,000"
)
ax.legend(frameon=False, title="circles: steps along curvature")
plt.show()

# %% [markdown]
# The method that uses only gradients stays at the saddle and reports it as a solution. The others
# leave, with less than a hundredth of the data that the worst case takes.
#
# ## Small batches
#
# A batch must resemble the full data: twice condition (24) of the paper, which follows from its
# (23). The privacy of the same run is accounted in three ways: by privacy loss distributions, which
# are tight where T and the noise are fixed beforehand, by the Renyi bound of Theorem B.4, and by
# advanced composition.

# %%
m = theory.second_order_batch(0.06, 0.245, constants.M, 1.0, 0.25, 54, 200, 0.05, 0.1, 0.25, 0.1)
noises = theory.batch_noise(0.9, DELTA, iterations=200, n=500_000, m=5_000)
print(f"a batch that is guaranteed to resemble the whole has {m:,} records")
print("noise multiplier for batches of 5,000 of 500,000 records, epsilon = .9:")
print(
    f"{noises.pld:.2f} by loss distributions, {noises.renyi:.2f} by Renyi accounting, "
    f"{noises.advanced:.2f} by advanced composition"
)
assert m > 495_141

# %% [markdown]
# ## The short answer

# %%
fine = target(0.06)
print(
    f"An (alpha, sqrt(M alpha))-2NS at alpha = .06, d = 54, epsilon = 1 is guaranteed with "
    f"{n_min(fine):,} records by short steps, and {n_min(fine, 'line_search'):,} by the line "
    f"search; with the printed sensitivities {n_min(printed_target(fine)):,} and "
    f"{n_min(printed_target(fine), 'line_search'):,}. ijcnn1 (49,990) guarantees "
    f"alpha = {promised['ijcnn1']:.2f}, all of Covertype {promised['all of Covertype']:.2f}. In "
    f"practice runs stop at the tolerances of the paper with far less data, and look at "
    f"{looked:.0f} Hessian on the way: those objectives have no saddle. At a real one, 30,000 "
    f"records do where the guarantee takes {needed.n:,}. A batch needs {m:,} records for its "
    f"guarantee, more than there are."
)

# %% [markdown]
# ## To try
#
# Halve the tolerance: how does n_min grow? Use another budget, epsilon = 4. Start at the saddle
# with a method that uses only gradients, and count in how many of ten seeds it leaves.
