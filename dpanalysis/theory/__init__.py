"""What the methods must achieve, known before any data are touched.

Pure functions in four groups:

- rates, exact errors on quadratics, error bounds, certificates from linear matrix inequalities,
  and the best division of a privacy budget over the iterations (Kuru et al. 2022);
- the bias that per-sample weights leave (Xia et al. 2023);
- how often gradients are clipped, what that costs, and how gradients grow with the loss
  (Fang et al. 2023);
- the steps and the data that an approximate second-order point needs (Gao and Wright 2023).

Statements of these papers that do not hold as printed are corrected here. What a paper prints
stands beside its claims, in ``dpanalysis/audit/papers``.
"""

from .adaptive_clipping import psac_lemma2, psac_table1, psac_weight_peak
from .allocation import (
    allocate_epsilon,
    allocate_gaussian,
    error_bound,
    laplace_scales,
)
from .certificates import (
    heavy_ball_certificate,
    heavy_ball_certified_rate,
    nesterov_certificate,
)
from .clipped_sgd import clipped_sgd_bound, no_clipping_norm
from .clipping_bias import clipped_mean_gradient, fixed_points
from .clipping_frequency import (
    clipping_frequency_gaussian,
    clipping_frequency_light_tail,
    clipping_frequency_weak_growth,
)
from .gradient_noise import noise_second_moment, subsampling_variance
from .heavy_ball import (
    heavy_ball_bound,
    heavy_ball_gap,
    heavy_ball_optimal_momentum,
    heavy_ball_rate,
    heavy_ball_stationary_gap,
)
from .horizon import best_horizon, horizon_bounds
from .largest_bias import worst_bias
from .lmi import (
    Certificate,
    StateSpace,
    heavy_ball_system,
    lyapunov_lmi,
)
from .multistage import (
    multistage_gap,
    multistage_recursion,
    multistage_schedule,
    multistage_weights,
)
from .nesterov import (
    nesterov_gap,
    nesterov_momentum,
    nesterov_rate,
    nesterov_recursion,
    nesterov_stationary_gap,
    nesterov_weights,
)
from .psac_convergence import psac_theorem2
from .recursion import ErrorRecursion, gradient_descent_recursion, heavy_ball_recursion
from .second_order import (
    SecondOrderConstants,
    curvature_roots,
    min_decrease_line_search,
    min_decrease_short,
    second_order_constants,
    tolerated_noise,
)
from .second_order_batches import batch_noise, second_order_batch
from .second_order_data import (
    SecondOrderTarget,
    Shares,
    iteration_bound,
    sample_complexity,
    sample_exponent,
    search_slack,
)
from .second_order_noise import gradient_noise_norm, hessian_noise_norm, lanczos_iterations
from .second_order_shares import best_shares
from .sgd_paths import light_tail_scale
from .spectral import spectral_bound
from .tuning import laplace_noise, tune_heavy_ball
from .weak_growth import weak_growth_logistic, weak_growth_mlp, weak_growth_softmax

__all__ = [
    "Certificate",
    "ErrorRecursion",
    "SecondOrderConstants",
    "SecondOrderTarget",
    "Shares",
    "StateSpace",
    "allocate_epsilon",
    "allocate_gaussian",
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
