"""What the methods must achieve, known before any data are touched.

Pure functions: rates, exact errors on quadratics, error bounds, certificates from linear
matrix inequalities, and the best division of a privacy budget over the iterations
(Kuru, Birbil, Gurbuzbalaban and Yildirim, SIAM J. Optim. 32, 2022; "001" below), and the
growth of clipped gradients with the loss (improved DP-SGD with gradient clipping; "004").
Statements that do not hold as printed are corrected; ``printed=True`` evaluates the paper's
own formula where one of its figures needs it.
"""

from .allocation import (
    allocate_epsilon,
    allocate_gaussian,
    error_bound,
    laplace_scales,
    noise_second_moment,
    subsampling_variance,
)
from .certificates import heavy_ball_certificate, nesterov_certificate
from .clipped_sgd import weak_growth_logistic, weak_growth_mlp, weak_growth_softmax
from .heavy_ball import (
    heavy_ball_bound,
    heavy_ball_gap,
    heavy_ball_optimal_momentum,
    heavy_ball_rate,
    heavy_ball_stationary_gap,
)
from .horizon import (
    ErrorRecursion,
    best_horizon,
    gradient_descent_recursion,
    heavy_ball_recursion,
    horizon_bounds,
)
from .lmi import (
    Certificate,
    LyapunovLMI,
    StateSpace,
    heavy_ball_system,
    lyapunov_lmi,
    nesterov_system,
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
from .tuning import TunedHeavyBall, laplace_noise, tune_heavy_ball

__all__ = [
    "Certificate",
    "ErrorRecursion",
    "LyapunovLMI",
    "StateSpace",
    "TunedHeavyBall",
    "allocate_epsilon",
    "allocate_gaussian",
    "best_horizon",
    "error_bound",
    "gradient_descent_recursion",
    "heavy_ball_bound",
    "heavy_ball_certificate",
    "heavy_ball_gap",
    "heavy_ball_optimal_momentum",
    "heavy_ball_rate",
    "heavy_ball_recursion",
    "heavy_ball_stationary_gap",
    "heavy_ball_system",
    "horizon_bounds",
    "laplace_noise",
    "laplace_scales",
    "lyapunov_lmi",
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
    "nesterov_system",
    "nesterov_weights",
    "noise_second_moment",
    "subsampling_variance",
    "tune_heavy_ball",
    "weak_growth_logistic",
    "weak_growth_mlp",
    "weak_growth_softmax",
]
