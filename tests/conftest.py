"""What all tests share. Torch uses one thread, since several workers on few cores would compete for them. No test reads
or writes the data folder of the person who runs the tests."""

import inspect
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `long` come first. All others keep their order."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Files need not survive a loss of power here, and thousands of waits for the disk take a fifteenth of the time.
    Processes that tests start do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def sources_read_once() -> Iterator[None]:
    """tyro reads the sources of all options again for each command line, which is half of its work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inspect.getsource", cache(inspect.getsource))
        yield


@pytest.fixture(scope="session")
def data_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that do not exist yet. Pytest's own way looks through all folders of the run for the next free number."""
    above = tmp_path_factory.mktemp("data-folders")
    return (above / str(i) for i in count())


@pytest.fixture(autouse=True)
def data_folder(data_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has its own data folder."""
    folder = next(data_folders)
    folder.mkdir()
    monkeypatch.setenv("NPDRAW_DATA_DIR", str(folder))
    return folder
