"""Sweeps on a Ray cluster: two nodes on this machine, of which one is killed."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npdraw.cli.main import main
from npdraw.sweep.cluster import Cluster
from npdraw.sweep.runs import read
from npdraw.sweep.schedule import carry_out
from sweep.small import ends, results, start, sweep, until

RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # only the loopback address
}
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of one node, with two cores and the name of a GPU. It and all that it wrote are gone afterwards."""
    from ray.cluster_utils import Cluster as Nodes  # here, since every worker reads this file

    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder,  # sockets need a short path
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in (RAY | {"RAY_TMPDIR": folder}).items():
            patch.setenv(name, value)
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)  # the same, here where Ray is imported
        Path(folder, "ray").mkdir()
        head = {"num_cpus": 2, "num_gpus": 1, "node_ip_address": HOST, "include_dashboard": False}
        found = Nodes(initialize_head=True, head_node_args=head)
        patch.setenv("RAY_ADDRESS", found.address)
        yield found
        found.shutdown()


@pytest.mark.long
def test_a_lost_node_changes_nothing(home: Path, whole: Path, nodes: Any) -> None:
    """Two of six runs are done before."""
    lost = nodes.add_node(num_cpus=1, node_ip_address=HOST)
    sweep()
    for folder in sorted((whole / "runs").iterdir())[:2]:
        shutil.copytree(folder, Path("out/runs", folder.name))
    process = start("out", "--on", "auto")
    until(lambda: len(results("out")) >= 3, process)
    nodes.remove_node(lost, allow_graceful=False)  # SIGKILL, while it works on a run
    before = results("out")
    ends(process)
    assert len(before) < 6 and before.items() <= results("out").items()
    assert Path("out/table.md").read_text() == (whole / "table.md").read_text()


@pytest.mark.long
def test_runs_share_gpus_and_nodes_must_see_their_folder(home: Path, nodes: Any) -> None:
    (run,) = read(sweep(axes=None, seeds=None), Path("out").absolute(), None, False)
    place = Cluster("auto", "auto", 6, True)
    assert (place.device, place.share, place.slots) == ("cuda", {"num_cpus": 1.0, "num_gpus": 0.1666}, 6)

    class Elsewhere(Cluster):
        """Asks for the folder of another machine."""

        def __init__(self) -> None:
            self.__dict__ |= vars(place)

        def start(self, run: object, how: dict[str, object]) -> object:
            return place.start(run, how | {"folder": "/elsewhere"})

    assert carry_out([run], Elsewhere(), {}, None, lambda run: None, lambda text: None) == (1, 0)
    assert run.failure.read_text().endswith(" does not see /elsewhere; all nodes must share it\n")


def test_what_cannot_be_reached_is_one_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", str(sweep()), "--on"]
    assert main([*command, "head:6379"]) == 2
    assert "--on must be auto or an address such as ray://HOST:10001, not head:6379\n" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        assert main([*command, "auto"]) == 2
        assert '--on needs ray; get it with `pip install "npdraw[sweep]"`\n' in capsys.readouterr().err
    monkeypatch.setattr("ray.init", unreachable)
    for address, hint in (("auto", "start one with `ray start --head`"), ("ray://head:1", "check that it runs")):
        assert main([*command, address]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"npdraw: there is no Ray cluster at {address}; {hint}") and told.count("\n") == 1
        assert len(told) <= 300
    assert not Path("sweeps").exists()


def unreachable(**given: object) -> None:
    raise ConnectionError("nobody answers. " * 99)
