"""Limits: what they refuse, how they are raised, and memory that threads share."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from npdraw import limits, store
from npdraw.config import Config, from_dict
from npdraw.errors import InputError
from npdraw.limits import VARIABLE, Budget, allowed, check, check_file, check_unpacked, excess


def test_the_sentence_says_what_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check("it is", 100, 100)
    with pytest.raises(InputError, match=r"^it is 301, more than the limit of 100 \(NPDRAW_LIMITS=4 allows it\)$"):
        check("it is 301", 301, 100)
    monkeypatch.setenv(VARIABLE, "4")
    check("it is 301", 301, 100)
    assert allowed(100) == 400 and "limit of 400" in excess(401, 100)
    assert "NPDRAW_LIMITS=1000000000 " in excess(10**5000, 1)


@pytest.mark.parametrize("value", ["0", "-1", "0.5", "nan", "inf", "four", ""])
def test_a_wrong_factor_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(InputError, match="NPDRAW_LIMITS multiplies all limits; it must be a number of at least 1"):
        allowed(1)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    check_file(path, 1)  # whoever reads it says that it does not exist
    path.write_bytes(bytes(1000))
    with pytest.raises(InputError, match="has 1,000 bytes, more than the limit of 999 "):
        check_file(path, 999)
    monkeypatch.setattr(limits, "UNPACKED", 5000)
    check_unpacked(path, 20_000)  # 20 times its own size
    with pytest.raises(InputError, match=r"unpacks to 20,001 bytes, more than the limit of 20,000 "):
        check_unpacked(path, 20_001)


def test_threads_wait_for_memory() -> None:
    budget, most, now, lock = Budget(10), 0, 0, threading.Lock()

    def work(wanted: int) -> None:
        nonlocal most, now
        with budget.take(wanted):
            with lock:
                now += min(wanted, 10)
                most = max(most, now)
            time.sleep(0.002)
            with lock:
                now -= min(wanted, 10)

    threads = [threading.Thread(target=work, args=(n,)) for n in [1, 9, 4, 3, 10, 99, 5, 5] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert most == 10 and budget.left == 10
    with pytest.raises(KeyError), budget.take(7):
        raise KeyError
    assert budget.left == 10


SMALL: dict[str, Any] = {"data": {"height": 8, "width": 8, "canvas": 8}, "bank": {"part_size": 2, "parts": 3}}


@pytest.mark.parametrize(
    "section, values, words",
    [
        ("prior", {"depth": 100_000}, "prior.depth is 100000, more than the limit of 256 "),
        ("decoder", {"blocks": 10**6}, "decoder.blocks is 1000000, more than"),
        ("bank", {"parts": 10**9, "patches": 10**9}, "bank.parts is 1000000000, more than the limit of 5,000 "),
        ("bank", {"patches": 10**9}, "numbers in all patches are 4000000000, more than"),
        ("data", {"height": 1000, "width": 1000, "canvas": 1000}, "places on the canvas are 250000, more than"),
        ("prior", {"mlp": 10**8}, "these settings make a net of at least"),
        ("prior", {"width": 10**12}, "these settings make a net of at least"),
        ("prior", {"width": 10**30}, "no model can be built from these settings"),
        ("posterior", {"width": 10**18}, "no model can be built from these settings"),
    ],
)
def test_large_settings_are_refused_in_a_moment(section: str, values: dict[str, Any], words: str) -> None:
    began = time.monotonic()
    with pytest.raises(InputError) as caught:
        store.unfilled(from_dict(Config, SMALL | {section: SMALL.get(section, {}) | values}), "cpu")
    assert words in str(caught.value) and time.monotonic() - began < 5


def test_a_raised_limit_lets_more_through(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = SMALL | {"prior": {"width": 2, "heads": 1, "head_dim": 1, "mlp": 1, "depth": 300, "stem_channels": 1}}
    monkeypatch.setenv(VARIABLE, "2")
    assert len(store.unfilled(from_dict(Config, deep)).prior.blocks) == 300


def test_an_unfilled_model_has_the_shapes_of_a_filled_one() -> None:
    config = from_dict(Config, SMALL)
    model = store.unfilled(config)
    filled = store.NPDraw(config, store.PartBank(torch.rand(3, 1, 2, 2)))
    assert {k: x.shape for k, x in model.state_dict().items()} == {k: x.shape for k, x in filled.state_dict().items()}
    assert all(x.is_meta for x in model.state_dict().values())
