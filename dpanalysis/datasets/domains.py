"""Public domains of the UCI attributes: category lists and ranges, in the files' order.

They are constants of this code, so the encoding of a row depends on that row alone, and an
encoded row obeys its norm bound whatever the data are (values outside a range are clipped).
Category lists are those of ``adult.names`` and ``bank-names.txt``. Ranges come from survey
codes where these are printed; where no source prints one, a round number of the size of the
largest published values is declared, chosen with these public data in view. For data that are
really private, the owner must declare ranges without looking: see :func:`load_csv`.
"""

from __future__ import annotations

from .tables import Domain

__all__ = ["ADULT", "ADULT_NAMES", "BANK", "BREAST_CANCER", "COVERTYPE", "COVERTYPE_NAMES"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


#: Adult: ages are top-coded at 90 and start above 16, weekly hours are coded 1 to 99, the
#: survey codes capital gains up to 99,999; losses and the survey weight have no printed
#: maximum, and are cut at 5,000 and 1,500,000.
ADULT: dict[str, Domain] = {
    "age": (16, 90),
    "workclass": _words(
        "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, "
        "Without-pay, Never-worked"
    ),
    "fnlwgt": (0, 1_500_000),
    "education": _words(
        "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, "
        "7th-8th, 12th, Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool"
    ),
    "education-num": (1, 16),
    "marital-status": _words(
        "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, "
        "Married-spouse-absent, Married-AF-spouse"
    ),
    "occupation": _words(
        "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
        "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, "
        "Transport-moving, Priv-house-serv, Protective-serv, Armed-Forces"
    ),
    "relationship": _words("Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried"),
    "race": _words("White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black"),
    "sex": ("Female", "Male"),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 5_000),
    "hours-per-week": (1, 99),
    "native-country": _words(
        "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, "
        "Outlying-US(Guam-USVI-etc), India, Japan, Greece, South, China, Cuba, Iran, "
        "Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, "
        "France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, "
        "Guatemala, Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, "
        "Trinadad&Tobago, Peru, Hong, Holand-Netherlands"
    ),
}
ADULT_NAMES = (*ADULT, "income")

#: Bank Marketing: balances in euros, durations in seconds, days since the last contact
#: (-1: never); the documentation prints no ranges, so round ones are declared here.
BANK: dict[str, Domain] = {
    "age": (18, 100),
    "job": _words(
        "admin., unknown, unemployed, management, housemaid, entrepreneur, student, "
        "blue-collar, self-employed, retired, technician, services"
    ),
    "marital": ("married", "divorced", "single"),
    "education": ("unknown", "secondary", "primary", "tertiary"),
    "default": ("yes", "no"),
    "balance": (-10_000, 100_000),
    "housing": ("yes", "no"),
    "loan": ("yes", "no"),
    "contact": ("unknown", "telephone", "cellular"),
    "day": (1, 31),
    "month": _words("jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec"),
    "duration": (0, 5_000),
    "campaign": (1, 50),
    "pdays": (-1, 1_000),
    "previous": (0, 50),
    "poutcome": ("unknown", "other", "failure", "success"),
}

#: Covertype: the known ranges of the ten numeric columns, then 4 + 40 indicators.
COVERTYPE: dict[str, Domain] = {
    "Elevation": (1859, 3858),
    "Aspect": (0, 360),
    "Slope": (0, 66),
    "Horizontal_Distance_To_Hydrology": (0, 1397),
    "Vertical_Distance_To_Hydrology": (-173, 601),
    "Horizontal_Distance_To_Roadways": (0, 7117),
    "Hillshade_9am": (0, 254),
    "Hillshade_Noon": (0, 254),
    "Hillshade_3pm": (0, 254),
    "Horizontal_Distance_To_Fire_Points": (0, 7173),
    **{f"Wilderness_Area_{k}": (0, 1) for k in range(1, 5)},
    **{f"Soil_Type_{k}": (0, 1) for k in range(1, 41)},
}
COVERTYPE_NAMES = (*COVERTYPE, "Cover_Type")

_CELL_NUCLEUS = (30, 40, 200, 3000, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1)
_CELL_NUCLEUS_ERROR = (3, 5, 25, 500, 0.05, 0.15, 0.4, 0.05, 0.1, 0.03)
_CELL_NUCLEUS_WORST = (40, 50, 260, 4500, 0.25, 1.0, 1.25, 0.3, 0.7, 0.2)

#: Breast cancer (Wisconsin, diagnostic): upper ends of the declared ranges ``[0, high]`` of
#: the 30 columns (mean, standard error, worst of radius, texture, perimeter, area,
#: smoothness, compactness, concavity, concave points, symmetry, fractal dimension). The
#: source prints no ranges: these round numbers were chosen with the published data in view
#: (they cut less than 0.5% of the values) and stand in for what a data owner would declare.
BREAST_CANCER: tuple[float, ...] = (*_CELL_NUCLEUS, *_CELL_NUCLEUS_ERROR, *_CELL_NUCLEUS_WORST)
