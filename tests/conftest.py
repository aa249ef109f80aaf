"""What all tests share: one torch thread, since several workers on few cores would fight for them, and no test reads or
writes the data folder of the person who runs them."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `long` come first, all others in their order."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of this test's own."""
    folder = tmp_path_factory.mktemp("data-folder")
    monkeypatch.setenv("NPDRAW_DATA_DIR", str(folder))
    return folder
