"""Rates, error bounds, budget allocation and sample complexity of the methods, without data.

Pure functions in four groups:

- rates, exact errors on quadratics, error bounds, certificates from linear matrix inequalities,
  and the optimal allocation of a privacy budget to the iterations, with a certificate that no
  Gaussian noise improves it (Kuru et al. 2022);
- the bias of per-sample weights (Xia et al. 2023);
- how often gradients are clipped, what that costs, and how gradients grow with the loss
  (Fang et al. 2023);
- iterations and records needed to find an approximate second-order point (Gao and Wright 2023).

Statements of these papers that do not hold as printed are corrected here; the printed versions
are in ``dpanalysis/papers``.
"""

from .adaptive_clipping import psac_lemma2, psac_table1, psac_theorem2, psac_weight_peak
from .allocation import (
    allocate_epsilon,
    allocate_gaussian,
    best_horizon,
    error_bound,
    horizon_bounds,
    laplace_scales,
)
from .certificates import heavy_ball_certificate, heavy_ball_certified_rate, nesterov_certificate
from .clipped_sgd import clipped_sgd_bound, light_tail_scale, no_clipping_norm
from .clipping_bias import clipped_mean_gradient, fixed_points, worst_bias
from .heavy_ball import (
    heavy_ball_bound,
    heavy_ball_gap,
    heavy_ball_optimal_momentum,
    heavy_ball_rate,
    heavy_ball_stationary_gap,
)
from .lmi import Certificate, StateSpace, heavy_ball_system, lyapunov_lmi
from .nesterov import (
    multistage_gap,
    multistage_recursion,
    multistage_schedule,
    multistage_weights,
    nesterov_gap,
    nesterov_momentum,
    nesterov_rate,
    nesterov_recursion,
    nesterov_stationary_gap,
    nesterov_weights,
)
from .noise_allocation import NoiseAllocation, allocation_certificate, noise_floor
from .recursion import (
    ErrorRecursion,
    gradient_descent_recursion,
    heavy_ball_recursion,
    noise_second_moment,
    subsampling_variance,
)
from .second_order import (
    SecondOrderConstants,
    batch_noise,
    curvature_roots,
    gradient_noise_norm,
    hessian_noise_norm,
    lanczos_iterations,
    min_decrease_line_search,
    min_decrease_short,
    second_order_batch,
    second_order_constants,
    tolerated_noise,
)
from .second_order_data import (
    SecondOrderTarget,
    Shares,
    best_shares,
    iteration_bound,
    sample_complexity,
    sample_exponent,
    search_slack,
)
from .tuning import laplace_noise, tune_heavy_ball
from .value_clipping import (
    clipping_frequency_gaussian,
    clipping_frequency_light_tail,
    clipping_frequency_weak_growth,
    spectral_bound,
    weak_growth_logistic,
    weak_growth_mlp,
    weak_growth_softmax,
)

__all__ = [
    "Certificate",
    "ErrorRecursion",
    "NoiseAllocation",
    "SecondOrderConstants",
    "SecondOrderTarget",
    "Shares",
    "StateSpace",
    "allocate_epsilon",
    "allocate_gaussian",
    "allocation_certificate",
    "batch_noise",
    "best_horizon",
    "best_shares",
    "clipped_mean_gradient",
    "clipped_sgd_bound",
    "clipping_frequency_gaussian",
    "clipping_frequency_light_tail",
    "clipping_frequency_weak_growth",
    "curvature_roots",
    "error_bound",
    "fixed_points",
    "gradient_descent_recursion",
    "gradient_noise_norm",
    "heavy_ball_bound",
    "heavy_ball_certificate",
    "heavy_ball_certified_rate",
    "heavy_ball_gap",
    "heavy_ball_optimal_momentum",
    "heavy_ball_rate",
    "heavy_ball_recursion",
    "heavy_ball_stationary_gap",
    "heavy_ball_system",
    "hessian_noise_norm",
    "horizon_bounds",
    "iteration_bound",
    "lanczos_iterations",
    "laplace_noise",
    "laplace_scales",
    "light_tail_scale",
    "lyapunov_lmi",
    "min_decrease_line_search",
    "min_decrease_short",
    "multistage_gap",
    "multistage_recursion",
    "multistage_schedule",
    "multistage_weights",
    "nesterov_certificate",
    "nesterov_gap",
    "nesterov_momentum",
    "nesterov_rate",
    "nesterov_recursion",
    "nesterov_stationary_gap",
    "nesterov_weights",
    "no_clipping_norm",
    "noise_floor",
    "noise_second_moment",
    "psac_lemma2",
    "psac_table1",
    "psac_theorem2",
    "psac_weight_peak",
    "sample_complexity",
    "sample_exponent",
    "search_slack",
    "second_order_batch",
    "second_order_constants",
    "spectral_bound",
    "subsampling_variance",
    "tolerated_noise",
    "tune_heavy_ball",
    "weak_growth_logistic",
    "weak_growth_mlp",
    "weak_growth_softmax",
    "worst_bias",
]
