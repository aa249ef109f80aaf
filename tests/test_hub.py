"""Models on the Hugging Face hub: the real `huggingface_hub` against a hub on loopback, in processes of their own.

That hub takes all files within the commit itself; how large ones travel to the real one is `huggingface_hub`'s matter.
"""

import base64
import contextlib
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from data.serving import listening, only_hub
from forks import Fork, script
from npdraw import NPDraw, hub, pretrained, store
from npdraw.errors import InputError

Files = dict[str, bytes]


class Hub(BaseHTTPRequestHandler):
    """The routes that are asked for models, and what was committed: a list of commits for each repository."""

    repos: dict[str, list[Files]]
    requests: list[str]
    private: list[bool]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.requests.append(f"{self.command} {path}")
        words = path.removeprefix("/api/models").strip("/").split("/")
        repo, (route, revision, *rest) = "/".join(words[:2]), [*words[2:], "", ""][: max(2, len(words) - 2)]
        commits = self.repos.get(repo)
        if commits is None:
            return self.answer(404, {"X-Error-Code": "RepoNotFound"})
        numbers = {name(i): i for i in range(len(commits))} | {"main": len(commits) - 1, "": len(commits) - 1}
        if revision not in numbers:
            return self.answer(404, {"X-Error-Code": "RevisionNotFound"})
        number = numbers[revision]
        files = commits[number]
        if route in ("", "revision"):
            self.send({"id": repo, "sha": name(number), "siblings": [{"rfilename": file} for file in files]})
        elif route == "tree":
            self.send([{"type": "file", "path": f, "size": len(c), "oid": git(c)} for f, c in files.items()])
        elif route == "resolve" and "/".join(rest) in files:
            content = files["/".join(rest)]
            self.answer(200, {"X-Repo-Commit": name(number), "ETag": f'"{git(content)}"'}, content)
        else:
            self.answer(404, {"X-Error-Code": "EntryNotFound"})

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        self.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != "Bearer hf_ours":
            return self.answer(401, {}, b'{"error": "Invalid credentials"}')
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            self.private.append(asked.get("visibility") == "private")
            known = repo in self.repos
            self.repos.setdefault(repo, [{}])
            return self.send({"url": f"http://{self.headers['Host']}/{repo}"}, 409 if known else 200)
        if path == "/api/validate-yaml":
            return self.send({"errors": [], "warnings": []})
        _, _, owner, title, route, _ = path.strip("/").split("/")
        commits = self.repos[f"{owner}/{title}"]
        if route == "preupload":
            asked = json.loads(body)["files"]
            return self.send(
                {"files": [{"path": x["path"], "uploadMode": "regular", "shouldIgnore": False} for x in asked]}
            )
        assert route == "commit", path
        lines = [json.loads(line) for line in body.splitlines()]
        new = {x["value"]["path"]: base64.b64decode(x["value"]["content"]) for x in lines if x["key"] == "file"}
        commits.append(commits[-1] | new)
        commit = name(len(commits) - 1)
        url = f"http://{self.headers['Host']}/{owner}/{title}/commit/{commit}"
        self.send({"commitUrl": url, "commitOid": commit})

    def send(self, value: Any, status: int = 200) -> None:
        self.answer(status, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def answer(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def name(number: int) -> str:
    """A commit by its number."""
    return f"{number:040x}"


def git(content: bytes) -> str:
    return hashlib.sha1(b"blob " + str(len(content)).encode() + b"\0" + content).hexdigest()


@contextlib.contextmanager
def served(repos: dict[str, list[Files]]) -> Iterator[tuple[str, type[Hub]]]:
    """The address of a hub, and what it knows."""
    handler = type("Here", (Hub,), {"repos": repos, "requests": [], "private": []})
    with listening(handler) as url:
        yield url, handler


# Runs lines one after the other and prints what each of them gives.
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
from npdraw import InputError, NPDraw
from npdraw.cli.main import main
def drawn(source):
    return NPDraw.from_pretrained(source).sample(2, seed=4).drawing.to_json()
for line in json.loads(sys.argv[1]):
    try:
        found = eval(line)
    except InputError as error:
        found = f"wrong: {error}"
    print("=", json.dumps(found))
"""


def run(folder: Path, url: str, *lines: str, token: str = "hf_ours") -> list[Any]:
    """What lines give in a process that knows no hub but the one at `url`."""
    environment = only_hub(url, folder) | {"HF_TOKEN": token}
    (folder / "script.py").write_text(SCRIPT)
    with contextlib.chdir(folder):
        process = Fork(folder / "said", environment, script, folder / "script.py", json.dumps(lines))
    return [json.loads(line[2:]) for line in process.finish().splitlines() if line.startswith("= ")]


@pytest.mark.long
def test_a_model_goes_to_the_hub_and_comes_back(tmp_path: Path) -> None:
    """One process for all that needs no other, since each takes seconds to start."""
    digits = NPDraw.from_pretrained("digits")
    own = digits.sample(2, seed=4).drawing.to_json()
    repos: dict[str, list[Files]] = {"o/words": [{"README.md": b"no model"}], "o/other": [{"config.json": b"{}"}]}
    push = 'NPDraw.from_pretrained("digits").push_to_hub'
    with served(repos) as (url, server):
        first, back, code, missing, words, other, revision, wrong = run(
            tmp_path,
            url,
            f'{push}("o/drawn", private=True)',
            'drawn("o/drawn")',
            'main(["sample", "o/drawn", "--seeds", "0-3", "--out", "x"])',
            'drawn("o/nothing")',
            'drawn("o/words")',
            'drawn("o/other")',
            'drawn("o/drawn@v7")',
            f'{push}("drawn")',
        )
        asked = list(server.requests)
        repos["o/drawn"][-1]["README.md"] = b"a card by its owner"
        (again,) = run(tmp_path, url, f'{push}("o/drawn", message="better")')
        pinned, refused = run(tmp_path, url, f'drawn("o/drawn@{name(1)}")', f'{push}("o/drawn")', token="hf_others")
    assert first == f"{url}/o/drawn/commit/{name(1)}" and again == f"{url}/o/drawn/commit/{name(2)}"
    assert server.private == [True, False]
    files = repos["o/drawn"][1]
    assert set(files) == {"config.json", "model.safetensors", "README.md"}  # nothing that could carry code
    assert repos["o/drawn"][2]["README.md"] == b"a card by its owner"
    assert back == pinned == own and code == 0 and (tmp_path / "x" / "grid.png").is_file()
    assert asked.count(f"GET /o/drawn/resolve/{name(1)}/model.safetensors") == 1
    assert asked.count("GET /api/models/o/drawn/revision/main") == 1  # looked up once, though it is used twice
    assert "o/nothing is not a folder here, and the hub has no model of that name" in missing and "hf auth" in missing
    assert "o/words on the hub is not an npdraw model" in words and "o/other on the hub is not an npdraw" in other
    assert "o/drawn has no commit v7" in revision
    assert "a model on the hub is OWNER/NAME, not 'drawn'" in wrong
    assert refused.startswith("wrong: cannot upload to o/drawn (") and "401" in refused
    assert not any("\n" in said for said in (missing, words, other, revision, wrong, refused))

    # The server is gone: what was downloaded is there, all else is one sentence.
    kept, gone = run(tmp_path, url, 'drawn("o/drawn")', 'drawn("o/new")')
    assert kept == own
    assert gone.startswith("wrong: cannot download o/new (") and "\n" not in gone


def test_what_is_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for word in ("a/b", "Owner-1/name.x_2", "a/b@main", "a/b@refs/pr/1", f"a/b@{name(3)}"):
        assert hub.is_repository(word) and store.is_model(word)
    for word in ("mnist", "runs/mnist", "./a", "../a", "/a/b", "a/b/c", "a/", "a b/c", "ä/b", "a/b@", "", "hf:a/b"):
        assert not hub.is_repository(word), word
    with pytest.raises(InputError, match="a/b is not a folder here, and a dry run does not ask the hub"):
        store.expect_here("a/b")
    with pytest.raises(InputError, match="no model at runs/mnist: give a run"):
        store.load_model("runs/mnist")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    get = 'get it with `pip install "npdraw[hub]"`'
    with pytest.raises(InputError) as caught:
        NPDraw.from_pretrained("no/where")
    assert str(caught.value) == f"no/where is not a folder here, and a model of the hub needs huggingface_hub; {get}"
    with pytest.raises(InputError) as caught:
        NPDraw.from_pretrained(pretrained.SHIPPED / "digits").push_to_hub("no/where")
    assert str(caught.value) == f"the hub needs huggingface_hub; {get}"


def test_the_snippet_of_the_card_runs() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", hub.CARD.format(repo="digits"), re.DOTALL)
    said: dict[str, Any] = {}
    exec(snippet, said)
    assert said["images"].shape == (16, 1, 28, 28)
