"""Models by name: the list, and how a package without them fetches them, from a server on loopback."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pretrained_list
from data.serving import Server, put, served, sha256
from npdraw import NPDraw, pretrained, store
from npdraw.cli.main import main
from npdraw.errors import InputError
from npdraw.files import read_text
from pretrained_list import FILES

DIGITS = {name: (pretrained.SHIPPED / "digits" / name).read_bytes() for name in FILES}  # small, in place of MNIST's
FACTS = {"set": "MNIST", "fid": 2.291, "licence": "research only, and so is the model"}
LINE = "mnist: trained on MNIST; licence of the images: research only, and so is the model"


def hosted(*folders: str, **changed: bytes) -> dict[str, bytes]:
    """Its files below some folders of a server, some of them changed."""
    return {f"{folder}/mnist/{name}": content for folder in folders for name, content in (DIGITS | changed).items()}


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that has no model in it, and the path of its list."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv(pretrained.VARIABLE, raising=False)
    monkeypatch.setattr("npdraw.data.fetch.PAUSE", 0)
    monkeypatch.setattr(pretrained, "SHIPPED", tmp_path / "models")
    monkeypatch.setattr(pretrained, "LIST", tmp_path / "pretrained.json")
    monkeypatch.chdir(tmp_path)
    pretrained.listed.cache_clear()
    yield tmp_path / "pretrained.json"
    pretrained.listed.cache_clear()


def write(path: Path, *places: str) -> None:
    """A list of one model, at the places."""
    files = {name: [len(content), sha256(content)] for name, content in DIGITS.items()}
    addresses = [f"{place}/{{name}}/{{file}}" for place in places]
    path.write_text(json.dumps({"places": addresses, "models": {"mnist": {**FACTS, "files": files}}}))


def asked(server: Server) -> list[str]:
    return [path.removeprefix("a/mnist/") for path in server.requests]


# --- the list ---


def test_the_list_is_of_the_files() -> None:
    """`python experiments/pretrained_list.py` writes it anew."""
    assert read_text(pretrained.LIST) == pretrained_list.written()
    assert set(pretrained.listed()) == set(store.shipped_models())
    for name, model in pretrained.listed().items():
        assert {*model.files} == {*FILES} and ("research only" in model.licence) == name.startswith("celeba")


def test_the_places_are_two_and_safe() -> None:
    places = json.loads(read_text(pretrained.LIST))["places"]
    addresses = {place.format(name=name, file=f) for place in places for name in pretrained.listed() for f in FILES}
    assert len(places) == 2 and all(place.startswith("https://") for place in places)
    assert len(addresses) == 2 * len(FILES) * len(pretrained.listed())


# --- fetching ---


def test_it_is_fetched_once(wheel: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(hosted("a")) as server:
        write(wheel, f"{server.url}/a")
        assert store.is_model("mnist") and pretrained.find("mnist") is None
        assert main(["models"]) == 0
        assert "to be fetched" in capsys.readouterr().out
        model = NPDraw.from_pretrained("mnist")
        assert asked(server)[-1] == "config.json" and set(asked(server)) == {*FILES}  # which says that all are there
    assert LINE in capsys.readouterr().out.splitlines()
    again = NPDraw.from_pretrained("mnist")  # the server is gone
    assert model.sample(2, seed=5).drawing == again.sample(2, seed=5).drawing
    assert main(["info", "mnist"]) == main(["models"]) == 0
    said = capsys.readouterr().out
    assert "made by:" in said and "in the cache" in said and LINE not in said
    folder = data_folder / "npdraw" / "models" / f"mnist-{sha256(DIGITS['model.safetensors'])[:12]}"
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {*FILES} and str(folder.parent) in said


def test_the_next_place_where_one_has_nothing(wheel: Path) -> None:
    with served(hosted("b")) as server:
        write(wheel, f"{server.url}/a", f"{server.url}/b")
        assert store.weights_hash("mnist") == sha256(DIGITS["model.safetensors"])
    assert {path.split("/")[0] for path in server.requests} == {"a", "b"}


def test_what_was_got_before_is_gone_on_with(wheel: Path) -> None:
    weights, half = DIGITS["model.safetensors"], 500_000
    with served(hosted("a")) as server:
        write(wheel, f"{server.url}/a")
        put(pretrained.listed()["mnist"].folder, {"model.safetensors.part": weights[:half]})
        assert store.weights_hash("mnist") == sha256(weights)
    assert dict(zip(asked(server), server.starts))["model.safetensors"] == half


def test_wrong_content_is_refused(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = DIGITS["model.safetensors"][:-1] + b"?"
    with served(hosted("a", **{"model.safetensors": wrong})) as server:
        write(wheel, f"{server.url}/a")
        for _ in range(2):
            with pytest.raises(InputError, match="its content is not the published one"):
                NPDraw.from_pretrained("mnist")
    assert not (pretrained.listed()["mnist"].folder / "model.safetensors").exists()
    assert pretrained.find("mnist") is None


def test_without_a_network_it_is_one_sentence(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound but not listening: refuses
        closed = f"127.0.0.1:{free.getsockname()[1]}"
        write(wheel, f"http://{closed}")
        assert main(["sample", "mnist", "--out", "x"]) == 2
    assert capsys.readouterr().err == (
        f"npdraw: cannot download model.safetensors: {closed} (Connection refused). Set NPDRAW_MODELS to a folder that "
        "holds mnist/, such as src/npdraw/models of a checkout, or to a mirror\n"
    )
    assert not Path("x").exists()


def test_a_dry_run_fetches_nothing(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(hosted("a")) as server:
        write(wheel, f"{server.url}/a")
        assert main(["sample", "mnist", "--out", "x", "--dry-run"]) == 2
        assert main(["train", "digits", "--init", "mnist", "--dry-run"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == ["npdraw: mnist is not here yet; npdraw info mnist fetches it (1.2 MB)"] * 2
    assert server.requests == []


CHILD = """
import sys
from pathlib import Path
from npdraw import NPDraw, pretrained
pretrained.SHIPPED, pretrained.LIST = Path("models"), Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(float(NPDraw.from_pretrained("mnist").sample(1).images.sum()))
"""


def test_two_processes_fetch_it_once(wheel: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(pretrained.__file__).parents[1])}
    words = [sys.executable, "-c", CHILD, str(wheel)]
    with served(hosted("a")) as server:
        write(wheel, f"{server.url}/a")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        both = [subprocess.Popen(words, env=environment, text=True, **pipes) for _ in range(2)]
        for process in both:
            assert process.stdout and process.stdout.readline() == "ready\n"
        for process in both:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        ended = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert ended[0][0].splitlines()[-1] == ended[1][0].splitlines()[-1]
    assert sorted(asked(server)) == sorted(FILES)


# --- NPDRAW_MODELS ---


def test_a_mirror_is_asked_first(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(hosted("a", "mirror")) as server:
        write(wheel, f"{server.url}/a")
        monkeypatch.setenv(pretrained.VARIABLE, f"{server.url}/mirror/")
        store.model_config("mnist")
    assert {path.split("/")[0] for path in server.requests} == {"mirror"}


def test_a_folder_comes_first(wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write(wheel, "http://127.0.0.1:1")
    put(Path("mine/mnist"), DIGITS)
    put(Path("models/mnist"), {**DIGITS, "config.json": b"another"})
    monkeypatch.setenv(pretrained.VARIABLE, "mine")
    assert main(["sample", "mnist", "--seeds", "0-3", "--out", "y"]) == main(["models"]) == 0
    assert "in NPDRAW_MODELS" in capsys.readouterr().out and Path("y/grid.png").is_file()


def test_a_folder_that_is_not_there_is_told(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(wheel, "http://127.0.0.1:1")
    monkeypatch.setenv(pretrained.VARIABLE, "ftp://elsewhere")
    with pytest.raises(InputError, match="NPDRAW_MODELS is ftp://elsewhere, which is neither a folder nor an address"):
        NPDraw.from_pretrained("mnist")
