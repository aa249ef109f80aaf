"""What all tests share. Torch uses one thread, since several workers on few cores would compete for them. No test reads
or writes the data folder of the person who runs the tests."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `long` come first. All others keep their order."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has its own data folder."""
    folder = tmp_path_factory.mktemp("data-folder")
    monkeypatch.setenv("NPDRAW_DATA_DIR", str(folder))
    return folder
