"""What all tests share: no test reads or writes the data folder of the person who runs them."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of this test's own."""
    folder = tmp_path_factory.mktemp("data-folder")
    monkeypatch.setenv("NPDRAW_DATA_DIR", str(folder))
    return folder
