"""DDLP's energy is arithmetic, no measurement: Table VIII follows from Table VI, but for a misprint that it shows.

E = t x (5 W x processes + 0.25 W x CSD), and 100 epochs of ImageNet at 0.095 $ a kilowatt-hour. Our estimate is the
same product with measured core seconds in the place of seconds x processes.
"""

import pytest

from viewcache.materializer.telemetry.power import CORE_W

CSD_W = 0.25
KWH_USD = 0.095
EPOCHS = 100

COLUMNS = ("CPU 0", "CPU 16", "CSD", "MTE 0", "WRR 0", "MTE 16", "WRR 16")
PROCESSES = (1, 17, 0, 1, 1, 17, 17)
"""Of the host: the main one, and 16 more."""
HAS_CSD = (False, False, True, True, True, True, True)

SECONDS = {
    "WRN": (3.527, 1.779, 10.014, 2.761, 2.698, 1.618, 1.604),
    "ResNet152": (3.376, 1.401, 10.315, 2.672, 2.624, 1.308, 1.301),
    "ViT": (8.536, 7.497, 22.24, 6.996, 6.695, 6.388, 6.171),
    "VGG": (5.522, 2.418, 19.84, 4.506, 4.449, 2.263, 2.255),
    "AlexNet": (48.48, 5.224, 155.1, 31.24, 31.12, 5.111, 5.104),
}
"""Table VI, ImageNet 1, one GPU: seconds of a batch."""

JOULES_USD = {
    "WRN": "17.63/0.2329 151.2/1.997 2.504/0.03307 14.49/0.1914 14.16/0.1871 137.9/1.821 136.7/1.806",
    "ResNet152": "16.88/0.2230 119.1/1.573 2.579/0.03406 14.03/0.1852 13.77/0.1819 111.5/1.472 110.9/1.465",
    "ViT": "42.68/0.2819 637.2/4.209 5.560/0.03672 36.73/0.2426 35.15/0.2321 544.6/3.597 526.1/3.475",
    "VGG": "27.61/0.1824 205.5/1.358 4.960/0.03276 23.65/0.1562 23.36/0.1543 193.0/1.275 192.2/1.270",
    "AlexNet": "192.4/0.1589 443.7/0.3665 38.77/0.03276 164.0/0.1354 163.4/0.1349 435.7/0.3599 435.2/0.3594",
}
"""Table VIII: joules of a batch, and dollars of 100 epochs."""

IMAGES = 1_281_167
BATCH = {"WRN": 256, "ResNet152": 256, "ViT": 512, "VGG": 512, "AlexNet": 4096}
"""Images of ImageNet in training, and of a batch: the sizes that the prices have."""

MISPRINT = ("AlexNet", "CPU 0")
CELLS = [(model, column) for model in SECONDS for column in COLUMNS]


def joules(model: str, column: str, seconds: float | None = None) -> float:
    """Of a batch, by the formula."""
    k = COLUMNS.index(column)
    return (SECONDS[model][k] if seconds is None else seconds) * (CORE_W * PROCESSES[k] + CSD_W * HAS_CSD[k])


def printed(model: str, column: str) -> tuple[float, float]:
    """Joules and dollars, as they stand in the paper."""
    cell = JOULES_USD[model].split()[COLUMNS.index(column)]
    energy, price = (float(each) for each in cell.split("/"))
    return energy, price


def test_joules_follow_from_seconds() -> None:
    """34 of 35 cells within 0.1 %; the other is off by more than a quarter."""
    off = {cell: abs(joules(*cell) / printed(*cell)[0] - 1) for cell in CELLS}
    assert len(off) == 35
    assert [cell for cell, error in off.items() if error > 1e-3] == [MISPRINT]
    assert off[MISPRINT] > 0.25


def test_the_cell_that_is_off_is_a_misprint() -> None:
    """48.48 s are 38.48 s: so Table VIII has it, and so MTE gains what the paper calls its most."""
    assert joules(*MISPRINT, seconds=38.48) == pytest.approx(printed(*MISPRINT)[0], rel=1e-3)
    best, mte = 0.2171, SECONDS["AlexNet"][COLUMNS.index("MTE 0")]
    assert 1 - mte / 38.48 < best < 1 - mte / 48.48


def test_prices_follow_from_joules() -> None:
    """Joules x batches x 100 epochs x 0.095 $/kWh to 0.1 % in 34 of 35 cells; one of AlexNet has the price of VGG."""
    off = []
    for model, column in CELLS:
        energy, usd = printed(model, column)
        expected = energy * IMAGES / BATCH[model] * EPOCHS / 3.6e6 * KWH_USD
        off += [(model, column)] if abs(expected / usd - 1) > 1e-3 else []
    assert off == [("AlexNet", "CSD")]
    assert printed("AlexNet", "CSD")[1] == printed("VGG", "CSD")[1]
