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
# # Certificates of the heavy ball method
#
# **You learn** how fast the heavy ball method converges on every function of a class, how much it
# amplifies noise, and how a certificate proves both.
#
# The heavy ball method with noisy gradients is
#
# $$w_{t+1} = w_t - \alpha\,(\nabla F(w_t) + \eta_t) + \beta\,(w_t - w_{t-1}).$$
#
# How fast does it converge, and how much does it amplify the noise? On a quadratic both
# questions have exact answers. For *every* $\mu$-strongly convex function with $L$-Lipschitz
# gradient a **certificate** answers them: a Lyapunov function
#
# $$V = {\begin{bmatrix} w_t - w^* \\ w_{t-1} - w^* \end{bmatrix}}^{\!\top} (P \otimes I)
# \begin{bmatrix} w_t - w^* \\ w_{t-1} - w^* \end{bmatrix} + c\,(F(w_t) - F^*)$$
#
# that contracts by $\rho^2$ in each step, up to noise. Finding $P$ and $c$ is a semidefinite
# program with $3 \times 3$ matrices (Kuru, Birbil, Gürbüzbalaban, Yıldırım 2022,
# Proposition 3.4, with the corrections listed in the project's errata).

# %%
import matplotlib.pyplot as plt
import numpy as np

from dpanalysis import CertificateNotFound, theory

mu, L = 0.1, 1.0

# %% [markdown]
# ## One certificate
#
# A solver proposes a certificate. The library recomputes the smallest eigenvalue of the residual
# matrix and returns the certificate only if it passes. That eigenvalue is the `margin`.

# %%
certificate = theory.heavy_ball_certificate(step_size=1.0, momentum=0.2, mu=mu, L=L)
print(certificate)
residual = certificate.lmi.residual(certificate.rate, certificate.P, certificate.c, certificate.c0)
print("eigenvalues of the residual:", np.linalg.eigvalsh(residual))
assert np.linalg.eigvalsh(residual)[0] >= 0.0

# %% [markdown]
# ## The certified rate and the exact rate on quadratics
#
# No certificate can beat the exact rate, because quadratics belong to the class. The distance
# between the two curves is the price of covering all functions. Where the certified curve ends,
# this family of Lyapunov functions proves nothing: for large momentum the heavy ball method is in
# fact known to fail on some functions that are not quadratic.

# %%
momenta = np.linspace(0.0, 0.9, 37)
fine = np.linspace(0.0, 0.9, 901)  # the exact rate has a kink at its best momentum


def certified(step_size: float, momentum: float) -> float:
    try:
        return theory.heavy_ball_certificate(step_size, momentum, mu, L).rate
    except CertificateNotFound:
        return np.nan


fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
for ax, step_size in zip(axes, (1.0, 0.5, 0.1)):
    rates = [certified(step_size, momentum) for momentum in momenta]
    exact = theory.heavy_ball_rate(step_size, momenta, mu, L)
    ax.plot(fine, theory.heavy_ball_rate(step_size, fine, mu, L), label="exact, quadratics")
    ax.plot(momenta, rates, "--", label="certified, all functions")
    ax.axvline(theory.heavy_ball_optimal_momentum(step_size, mu, L), color="0.7", lw=0.8)
    ax.set(title=f"step size {step_size:g} / L", xlabel="momentum")
    assert np.nanmin(np.array(rates) - exact) >= -1e-9
axes[0].set_ylabel("rate per iteration")
axes[2].legend(frameon=False, loc="lower left")
plt.show()

# %% [markdown]
# The gray line is the best momentum on quadratics,
# $\max\{(1-\sqrt{\alpha\mu})^2, (1-\sqrt{\alpha L})^2\}$.
#
# ## A wrong sign proves anything
#
# The paper prints $B = [\alpha, 0]^\top$ where the method has $B = [-\alpha, 0]^\top$. The error
# looks harmless. Here is what it would "prove" at $\mu = .5$, $\alpha = 1.5$, $\beta = .9$:

# %%
from dataclasses import replace

from dpanalysis.theory.certificates import best_certificate

lmi = theory.lyapunov_lmi(theory.heavy_ball_system(1.5, 0.9), mu=0.5, L=1.0)
A, B, C = lmi.system
wrong = best_certificate(replace(lmi, system=theory.StateSpace(A, -B, C)), 0.0, "printed B")
true_rate = theory.heavy_ball_rate(1.5, 0.9, 0.5, 1.0)
print(f"certified with the printed sign: {wrong.rate:.3f}; true rate: {true_rate:.4f}")
assert wrong.rate < true_rate

# %% [markdown]
# ## Three goals, three certificates
#
# The fastest rate, the lowest noise floor and the best bound after $T$ iterations are three
# different optimization problems with three different answers.

# %%
step_size, momentum, T, moment = 0.1, 0.5, 60, 1e-2
goals = {
    "best rate": {},
    "lowest floor": {"objective": "noise"},
    f"best bound at T = {T}": {
        "objective": "bound",
        "horizon": T,
        "noise_second_moment": moment,
        "initial": (1.0, None),
    },
}
times = np.arange(201)
fig, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name, options in goals.items():
    one = theory.heavy_ball_certificate(step_size, momentum, mu, L, **options)
    print(f"{name:22s} rate {one.rate:.4f}   noise gain {one.noise_gain:.4f}")
    ax.semilogy(times, one.bound(times, one.lyapunov(distance=1.0), moment), label=name)
worst = max(
    (
        theory.heavy_ball_gap([lam], step_size, momentum, moment, 1.0, times[-1])
        for lam in np.geomspace(mu, L, 9)
    ),
    key=lambda gap: gap[T],
)
ax.semilogy(times, worst, "k:", label=f"worst quadratic at T = {T}, exact")
ax.axvline(T, color="0.7", lw=0.8)
ax.set(xlabel="iteration", ylabel=r"bound on $E[F(w_t) - F^*]$")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Nesterov's method, with the same tools
#
# Only the state space changes ($C = [1 + \beta, -\beta]$). The classical analysis gives
# $\rho^2 = 1 - \sqrt{\mu\alpha}$; the semidefinite program finds a rate at least as good.

# %%
for mu_n in (0.5, 0.1, 0.01, 0.001):
    one = theory.nesterov_certificate(1.0, mu_n, 1.0)
    classical = np.sqrt(1 - np.sqrt(mu_n))
    print(f"mu = {mu_n:<6g} certified {one.rate:.5f}   classical {classical:.5f}")
    assert one.rate <= classical + 1e-6

# %% [markdown]
# ## Parameters for a private run
#
# Under a privacy budget the noise grows with the number of iterations, so step size, momentum
# and horizon are chosen together.

# %%
law = theory.laplace_noise(epsilon=1.0, sensitivity=2.0, n=2000, dimension=10)
tuned = theory.tune_heavy_ball(mu, L, law, horizon_max=200, initial=(1.0, None))
polyak = 4 / (np.sqrt(mu) + np.sqrt(L)) ** 2
print(f"tuned:  step size {tuned.step_size:.3f}, momentum {tuned.momentum:.3f}, "
      f"T = {tuned.iterations}, worst error on quadratics {tuned.value:.2e}")  # fmt: skip
print(f"Polyak: step size {polyak:.3f}, the noiseless optimum")

# %% [markdown]
# ## To try
#
# Set `mu = 0.01`: how much smaller must the momentum be for a certificate to exist? Give
# `tune_heavy_ball` a budget of epsilon = 0.1 and see how T changes. Replace the quadratic by one
# with other eigenvalues.
