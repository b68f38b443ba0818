"""Methods that violate the contract, each found with a message that names the violation."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis import testing
from dpanalysis.methods import AdaptiveMethod, GradientDescent, Method, Step
from dpanalysis.privacy import mechanisms, queries
from dpanalysis.privacy.events import Gaussian
from dpanalysis.privacy.facts import gradient_event, sampled_event

STD, T = 0.05, 4
LAST = {}


class Honest(Method):
    """A valid base class: some gradient steps with noise calibrated to the budget."""

    together = True

    def prepare(self, facts, budget, accountant):
        if budget is None:
            return None
        return dpa.privacy.calibrate(
            lambda std: self.asked(facts, std) * T, budget, (1e-4, 1e4), accountant=accountant
        )

    def asked(self, facts, std):
        event = gradient_event(facts, self.sampling, "gaussian", std)
        return [sampled_event(facts, self.sampling, [event])]

    def events(self, facts, plan):
        return self.asked(facts, plan) * T if plan else ()

    def ask(self, w, oracle, plan):
        return oracle.gradient(w, self.sampling, "gaussian", plan)

    def run(self, w, oracle, plan):
        for _ in range(T):
            w = w - 0.3 * self.ask(w, oracle, plan)
            yield Step(w)

    def length(self, plan):
        return T


class KeepsAnswers(Honest):
    def ask(self, w, oracle, plan):
        self.seen = super().ask(w, oracle, plan)
        return self.seen


class KeepsInItsClass(Honest):
    seen = []  # noqa: RUF012

    def ask(self, w, oracle, plan):
        answer = super().ask(w, oracle, plan)
        self.seen.append(float(answer[0, 0]))
        return answer


class StartsAtAGlobalName(Honest):
    def run(self, w, oracle, plan):
        yield from super().run(w + LAST.get("w", 0.0), oracle, plan)
        LAST["w"] = 0.1 + LAST.get("w", 0.0)


def closure():
    start = [None]

    class StartsWhereItEnded(Honest):
        def run(self, w, oracle, plan):
            for step in super().run(w if start[0] is None else start[0], oracle, plan):
                yield step
            if len(step.w) == len(w):
                start[0] = step.w

    return StartsWhereItEnded()


class HoldsTheProblem(Honest):
    def __init__(self):
        self.options = {"reference": dpa.ERM(np.eye(2), [1, -1], dpa.losses.Logistic())}


class ReadsHistory(Honest):
    def run(self, w, oracle, plan):
        for step in super().run(w, oracle, plan):
            yield step
            log = sys._getframe(2).f_locals.get("log")
            objective = log._values.get("objective") if log is not None else None
            if objective and objective[-1].min() < np.inf:
                return


class YieldsInsideABatch(Honest):
    def run(self, w, oracle, plan):
        event = oracle.gradient_event(self.sampling, "gaussian", plan)
        for _ in range(T):
            with oracle.batch(self.sampling, [event]) as batch:
                w = w - 0.3 * batch.gradient(w, "gaussian", plan)
                yield Step(w)


class AsksMore(Honest):
    def run(self, w, oracle, plan):
        yield from super().run(w, oracle, plan)
        yield Step(w - self.ask(w, oracle, plan))


class AsksLess(Honest):
    def run(self, w, oracle, plan):
        steps = super().run(w, oracle, plan)
        yield from (next(steps) for _ in range(T - 1))


class AsksMoreAccurately(Honest):
    def ask(self, w, oracle, plan):
        return oracle.gradient(w, self.sampling, "gaussian", plan / 2.0)


class PlansTwiceItsBudget(Honest):
    def prepare(self, facts, budget, accountant):
        return super().prepare(facts, budget, accountant) / 2.0


class PlansNothing(Honest):
    def events(self, facts, plan):
        return ()


class PlansAtRandom(Honest):
    def prepare(self, facts, budget, accountant):
        return super().prepare(facts, budget, accountant) * (1.0 + np.random.default_rng().random())


class PlansFromData(Honest):
    """Reads the data set from the calling frames, as a method with access to it might."""

    def prepare(self, facts, budget, accountant):
        frame = sys._getframe()
        while frame is not None and "problem" not in frame.f_locals:
            frame = frame.f_back
        problem = frame.f_locals["problem"]
        problem = getattr(problem, "problem", problem)
        factor = 1.0 + float(np.abs(problem.gradient(np.zeros(facts.d))).sum())
        return super().prepare(facts, budget, accountant) * factor


class UsesGlobalRandomNumbers(Honest):
    def run(self, w, oracle, plan):
        return super().run(w + 1e-3 * np.random.standard_normal(w.shape), oracle, plan)  # noqa: NPY002


class HasASourceOfItsOwn(Honest):
    def run(self, w, oracle, plan):
        return super().run(w + np.random.default_rng().random(w.shape), oracle, plan)


class ReadsTheProblem(Honest):
    def ask(self, w, oracle, plan):
        exact = oracle._problem.gradient_sum(w) / oracle.facts.n
        return super().ask(w, oracle, plan) * 0.0 + exact


class ReadsTheProblemBesideABatch(Honest):
    def run(self, w, oracle, plan):
        event = oracle.gradient_event(self.sampling, "gaussian", plan)
        for _ in range(T):
            with oracle.batch(self.sampling, [event]) as batch:
                problem = vars(batch)["_oracle"].__dict__["_problem"]
                w = w - 0.3 * batch.gradient(w, "gaussian", plan) - problem.gradient(w)
            yield Step(w)


class CatchesItsComplaint(Honest):
    def ask(self, w, oracle, plan):
        answer = super().ask(w, oracle, plan)
        try:
            return answer + 1e-6 * oracle._problem.value(w)[:, None]
        except AssertionError:
            return answer


class CountsTheBatch(Honest):
    sampling = dpa.Poisson(0.2)

    def ask(self, w, oracle, plan):
        return super().ask(w, oracle, plan) / max(oracle.evaluations["gradient"], 1)


class CountsTheRows(Honest):
    """Divides by the private size of the batch, not by the public size."""

    sampling = dpa.Poisson(0.5)

    def ask(self, w, oracle, plan):
        event = oracle.gradient_event(self.sampling, "gaussian", plan)
        with oracle.batch(self.sampling, [event]) as batch:
            counts = [max(len(rows), 1) for rows in batch._rows]
            return batch.gradient(w, "gaussian", plan) * 100.0 / np.array(counts)[:, None]


class MixesReplicates(Honest):
    def ask(self, w, oracle, plan):
        return super().ask(w, oracle, plan).mean(axis=0) + 0.0 * w


class ReusesItsBuffer(Honest):
    def run(self, w, oracle, plan):
        for _ in range(T):
            w -= 0.3 * self.ask(w, oracle, plan)
            yield Step(w)


class ChangesItsPlan(Honest):
    def prepare(self, facts, budget, accountant):
        return [super().prepare(facts, budget, accountant)]

    def events(self, facts, plan):
        return super().events(facts, plan[0])

    def run(self, w, oracle, plan):
        yield from super().run(w, oracle, plan[0])
        plan.append(w)


class YieldsTheIterate(Honest):
    def run(self, w, oracle, plan):
        yield from (step.w for step in super().run(w, oracle, plan))


class YieldsAnotherShape(Honest):
    def run(self, w, oracle, plan):
        yield from (Step(step.w[0]) for step in super().run(w, oracle, plan))


class CannotTravel(Honest):
    def __init__(self):
        self.schedule = lambda t: 1.0 / t


class PromisesALength(Honest):
    def length(self, plan):
        return T + 1


class Resumable(Honest):
    """Steps with momentum that can be resumed from a checkpoint."""

    def run(self, w, oracle, plan):
        return self.resume(Step(w), 0, 0, oracle, plan)

    def resume(self, step, made, lost, oracle, plan):
        w, speed = step.w, step.state.get("speed", np.zeros_like(step.w))
        for t in range(made, T):
            if t >= made + lost:
                speed = 0.5 * speed - 0.3 * self.ask(w, oracle, plan)
                w = w + speed
            yield Step(w, state=self.state(speed, oracle))

    def state(self, speed, oracle):
        return {"speed": speed}


class ForgetsItsSpeed(Resumable):
    def state(self, speed, oracle):
        return {}


class ForgetsItsSpeedAlone(ForgetsItsSpeed):
    """Has one replicate at a time."""

    together = False


class NeedsItsSpeed(Resumable):
    def resume(self, step, made, lost, oracle, plan):
        step.state["speed"]
        return super().resume(step, made, lost, oracle, plan)

    def run(self, w, oracle, plan):
        return self.resume(Step(w, state={"speed": 0.0 * w}), 0, 0, oracle, plan)


class AsksForLostBatches(Resumable):
    def resume(self, step, made, lost, oracle, plan):
        return super().resume(step, made, 0, oracle, plan)


class WritesDownSizes(Resumable):
    def state(self, speed, oracle):
        return {"speed": speed, "records": oracle.evaluations["gradient"]}


class Adaptive(AdaptiveMethod):
    """A method without a plan, whose events depend on answers."""

    together = False
    steps = 50

    def prepare(self, facts, budget, accountant):
        return 0.1

    def iteration(self, facts, plan):
        return [gradient_event(facts, self.sampling, "gaussian", plan)]

    def run(self, w, oracle, plan):
        for _ in range(self.steps):
            w = w - 0.3 * self.ask(w, oracle, plan)
            yield Step(w)

    def ask(self, w, oracle, plan):
        return oracle.gradient(w, self.sampling, "gaussian", plan)


class TakesPartOfTheAnswer(Adaptive):
    """Opens a batch with cheap events and requests expensive ones."""

    def ask(self, w, oracle, plan):
        with oracle.batch(self.sampling, [Gaussian(1e3, 1.0)]) as batch:
            return batch.gradient(w, "gaussian", plan)


class GivesUpItsFilter(Adaptive):
    steps = 19

    def ask(self, w, oracle, plan):
        oracle._guard = None
        return super().ask(w, oracle, plan)


class IsNoAdaptiveMethod(Honest):
    def events(self, facts, plan):
        return None


LIARS = [
    (KeepsAnswers(), "a run changes what the method remembers .*seen"),
    (KeepsInItsClass(), r"a run changes what the method remembers .*KeepsInItsClass\.seen"),
    (StartsAtAGlobalName(), "the same seed gives other numbers"),
    (closure(), "the same seed gives other numbers"),
    (HoldsTheProblem(), r"the method holds a ERM \(HoldsTheProblem\.options\)"),
    (ReadsHistory(), "the run depends on what is recorded beside it"),
    (YieldsInsideABatch(), "yields a step while its batch is open"),
    (AsksMore(), "asks what it has not planned"),
    (AsksLess(), "asks other than it plans: 3 events were charged where events.. lists 4"),
    (AsksMoreAccurately(), "asks what it has not planned"),
    (PlansTwiceItsBudget(), "plans more than its budget"),
    (PlansNothing(), "takes none of six budgets.*every iteration needs noise"),
    (PlansAtRandom(), "plans other events the second time"),
    (PlansFromData(), "plans other events for a data set that differs in one record"),
    (UsesGlobalRandomNumbers(), "random numbers that the whole process shares"),
    (HasASourceOfItsOwn(), "the same seed gives other numbers"),
    (ReadsTheProblem(), "looks at the records: it uses the problem's gradient_sum"),
    (ReadsTheProblemBesideABatch(), "looks at the records: it uses the problem's gradient"),
    (CatchesItsComplaint(), "given the oracle's answers .* takes other steps"),
    (CountsTheRows(), "takes other steps"),
    (CountsTheBatch(), r"reads oracle\.evaluations, which is not private"),
    (MixesReplicates(), "replicate r of 2 and replicate r of 4 differ"),
    (ReusesItsBuffer(), "changes an array that it has yielded"),
    (ChangesItsPlan(), "changes its plan"),
    (YieldsTheIterate(), r"run\(\) must yield a Step\(w\), got ndarray"),
    (YieldsAnotherShape(), r"must yield iterates of shape \(2, 3\), got \(3,\)"),
    (CannotTravel(), "cannot be pickled"),
    (PromisesALength(), "says 5 iterations, and run.. makes 4"),
    (ForgetsItsSpeed(), "resumed from a checkpoint gives other numbers .* state="),
    (ForgetsItsSpeedAlone(), "resumed from a checkpoint gives other numbers .* state="),
    (NeedsItsSpeed(), r"resume\(\) fails: KeyError: 'speed' \(see Method.resume on empty states"),
    (AsksForLostBatches(), r"resume\(\) fails: PrivacyBudgetExceeded: .* nothing is left"),
    (WritesDownSizes(), r"reads oracle\.evaluations, which is not private"),
    (TakesPartOfTheAnswer(), "asks what it has not planned: .* was not declared"),
    (GivesUpItsFilter(), "the method spends 1.71 where its filter allows 1.69"),
    (IsNoAdaptiveMethod(), "must be an AdaptiveMethod"),
    (object(), "extends dpanalysis.methods.Method"),
]
KERNELS = ("CountsTheBatch", "CountsTheRows")  # slow, as kernels of batches are compiled


class ReleasesWords(Honest):
    def run(self, w, oracle, plan):
        yield from (Step(step.w, {"size": "small"}) for step in super().run(w, oracle, plan))


class Fails(Honest):
    def run(self, w, oracle, plan):
        yield from super().run(w, oracle, plan)
        raise ValueError("no such thing")


class Constant(Honest):
    def run(self, w, oracle, plan):
        yield from (Step(0.0 * step.w) for step in super().run(w, oracle, plan))


class LosesItsPlan(Honest):
    """The step size changes when pickled."""

    size = 0.3

    def __init__(self):
        self.size = 0.3

    def __getstate__(self):
        return {"size": 0.4}

    def ask(self, w, oracle, plan):
        return super().ask(w, oracle, plan) * self.size


class AsksNothing(Adaptive):
    def run(self, w, oracle, plan):
        yield Step(w)


class PaysForNothing(Adaptive):
    """Has the same iterates in all runs, and in half of them pays for one more answer."""

    steps = 3

    def run(self, w, oracle, plan):
        yield from super().run(w, oracle, plan)
        LAST["runs"] = LAST.get("runs", 0) + 1
        if LAST["runs"] // 4 % 2:  # two replicates a run
            self.ask(w, oracle, plan)


class AsksUntilEnoughWereDrawn(Adaptive):
    """Stops depending on the sizes of the batches, which are private."""

    def run(self, w, oracle, plan):
        for step in super().run(w, oracle, plan):
            yield step
            if oracle.evaluations["gradient"] >= 2 * oracle.facts.n:
                return


class EndsAfterMany(Adaptive):
    """Would stop depending on the sizes of the batches, but not in a run as short as a test's."""

    def run(self, w, oracle, plan):
        for step in super().run(w, oracle, plan):
            yield step
            if oracle.evaluations["gradient"] >= 1e9:
                return


@dataclass(frozen=True, eq=False)
class Difference(queries.Query):
    """A noisy gradient that takes back the noise of the last one: their sum has little noise."""

    w: np.ndarray
    std: float
    noise: list

    def event(self, facts, sampling):
        return gradient_event(facts, sampling, "gaussian", self.std)

    def answer(self, records, random):
        before = self.noise[-1] if self.noise else 0.0
        self.noise.append(mechanisms.noisy(random, 0.0 * self.w, "gaussian", self.std / 2**0.5))
        mean = records.problem.gradient_sum(self.w[None])[0] / records.size
        return mean + self.noise[-1] - before, 1


class CorrelatesNoise(Honest):
    together = False

    def run(self, w, oracle, plan):
        noise = []
        for _ in range(T):
            w = w - 0.3 * oracle.ask(Difference(w, plan, noise), self.sampling)
            yield Step(w)


def stating(**attributes):
    return type("Liar", (Honest,), attributes)()


MORE = [
    (ReleasesWords(), r"released\['size'\] must be a number, got 'small'"),
    (Fails(), r"run\(\) fails: ValueError: no such thing"),
    (Constant(), "replicates give the same numbers: each must have independent noise"),
    (LosesItsPlan(), "a pickled copy of the method gives another run"),
    (AsksNothing(), "asks nothing of the oracle, so it cannot depend on the data"),
    (PaysForNothing(), "the same seed gives other numbers the second time"),
    (AsksUntilEnoughWereDrawn(), r"reads oracle\.evaluations, which is not private"),
    (EndsAfterMany(), r"reads oracle\.evaluations, which is not private"),
    (CorrelatesNoise(), r"the answer of a query changes query\.noise"),
    (stating(sampling="full"), "Liar.sampling is of the wrong kind: 'full'"),
    (stating(together=1), "Liar.together is of the wrong kind: 1"),
    (stating(output=None), "Liar.output is of the wrong kind: None"),
    (stating(clipping=1.0), r"Liar.clipping must be a rule: 1\.0"),
    (stating(released="iterates"), "Liar.released must be a tuple of strings"),
    (stating(released=(1,)), "Liar.released must be a tuple of strings"),
]


@pytest.mark.parametrize(
    ("liar", "message"),
    [
        pytest.param(*each, id=name, marks=[pytest.mark.slow] * (name in KERNELS))
        for each in LIARS
        for name in [type(each[0]).__name__]
    ],
)
def test_a_method_that_breaks_the_contract_is_found(liar, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_method(liar)


@pytest.mark.parametrize(("liar", "message"), MORE, ids=[type(m).__name__ for m, _ in MORE])
def test_other_violations_of_a_method_are_found(liar, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_method(liar)


def test_a_plan_over_a_stated_budget_is_found():
    budget = dpa.Budget(1.0, 1e-5)
    with pytest.raises(AssertionError, match="the method plans more than its budget"):
        testing.check_method(PlansTwiceItsBudget(), budget=budget)
    with pytest.raises(AssertionError, match="the method cannot be planned under"):
        testing.check_method(GradientDescent(0.5, 3, mechanism="gaussian"), budget=dpa.Budget(1.0))


class Signs(Honest):
    """Steps of one size: the iterates of independent replicates may coincide."""

    def __init__(self, size):
        self.size = size

    def run(self, w, oracle, plan):
        for _ in range(T):
            w = w - self.size * np.sign(self.ask(w, oracle, plan))
            yield Step(w)


@pytest.mark.parametrize(
    "method", [Honest(), Resumable(), Adaptive(), Signs(0.01), Signs(1e-3), Signs(10.0)]
)
def test_valid_methods_pass(method):
    testing.check_method(method)


def test_a_neighbour_has_the_same_public_facts():
    problem = dpa.Quadratic([1.0, 2.0], sensitivity=0.1)
    other = dpa.Quadratic([1.0, 3.0], sensitivity=0.1)
    method = GradientDescent(0.2, 3)
    testing.check_method(method, problem, neighbour=problem)
    with pytest.raises(AssertionError, match="neighbour must have the public facts"):
        testing.check_method(method, problem, neighbour=other)


def test_a_method_that_holds_rows_is_found():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1.0, 1.0, (50, 3)), rng.choice([-1.0, 1.0], 50)
    bound = dpa.RowBound(2, 2.0)
    problem = dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(0.1), bound)
    method = Honest()
    method.options = {"rows": X[:3]}
    with pytest.raises(AssertionError, match=r"holds an array of the problem's data \(Honest.opt"):
        testing.check_method(method, problem)
