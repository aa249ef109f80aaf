"""Pictures of a dataset on the Hugging Face hub, `hf:OWNER/NAME@COMMIT`: its .parquet files at one commit.

- The content of a commit never changes, so files that were downloaded or prepared once are used again offline.
- Files are checked against the hash that the hub lists: SHA-256, or git's SHA-1 for small ones.
- A word in the name of a file, or of the nearest folder, says its part: `data/test-00000.parquet`. Files without such
  a word are for training.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from npdraw.config import Reading
from npdraw.data.images import PARTS, ImageSet
from npdraw.data.parquet import prepare_tables
from npdraw.data.prepared import Writer, digest, place, prepared
from npdraw.errors import InputError
from npdraw.extras import need
from npdraw.hub import one_sentence
from npdraw.progress import Progress

WORDS = dict.fromkeys(("train", "training"), "train")
WORDS |= dict.fromkeys(("validation", "valid", "val", "dev"), "validation")
WORDS |= dict.fromkeys(("test", "testing", "eval", "evaluation"), "test")


def load_hub(source: str, reading: Reading, files: Path, into: Path, progress: Progress) -> ImageSet:
    """The image set of `hf:OWNER/NAME@COMMIT`, downloaded below `files` if it is missing."""
    repo, commit = _pinned(source)

    def build(writer: Writer) -> None:
        root = _download(repo, commit, files / "hub", progress)
        prepare_tables(source, _parts(repo, root), reading, writer, progress)
        folders = {" ".join(x for x in path.relative_to(root).parts[:-1] if not _word(x)) for path in _tables(root)}
        if len(folders) > 1:
            writer.notes.append(f"pictures of several folders are read as one set: {', '.join(sorted(folders))}")

    return prepared(hub_place(source, reading, into), source, digest(source, reading), build, progress)


def hub_place(source: str, reading: Reading, into: Path) -> Path:
    """The folder for the prepared pictures of a dataset."""
    return place(into, _pinned(source)[0].partition("/")[2], source, reading)


def _pinned(source: str) -> tuple[str, str]:
    """OWNER/NAME and the commit."""
    found = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@(.*))?", source, re.ASCII)
    if not found:
        raise InputError(f"a dataset of the Hugging Face hub is hf:OWNER/NAME@COMMIT; not {source!r}")
    repo, commit = found[1], found[2] or ""
    if not re.fullmatch("[0-9a-f]{40}", commit):
        raise InputError(
            f"pin {repo} to a commit, with all 40 digits, as in hf:{repo}@{'0123456789' * 4}; its page on the hub "
            "lists the commits; branches and tags can change"
        )
    return repo, commit


def _tables(root: Path) -> list[Path]:
    return sorted(root.rglob("*.parquet"))


def _parts(repo: str, root: Path) -> dict[str, list[Path]]:
    """The files of each part."""
    parts: dict[str, list[Path]] = {}
    for path in _tables(root):
        words = (_word(name) for name in reversed(path.relative_to(root).parts))
        parts.setdefault(next(filter(None, words), "train"), []).append(path)
    if not parts:
        raise InputError(
            f"{repo} has no parquet files at this commit; many datasets have them in the branch refs/convert/parquet: "
            "pin a commit of that one"
        )
    if "train" not in parts:
        raise InputError(f"{repo} has only {' and '.join(parts)} files, none to train on; choose another dataset")
    return {part: parts[part] for part in PARTS if part in parts}


def _word(name: str) -> str | None:
    """The part that the name of a file or folder says."""
    return next((WORDS[word] for word in re.split("[^a-z]+", name.lower()) if word in WORDS), None)


def _download(repo: str, commit: str, folder: Path, progress: Progress) -> Path:
    """The folder that holds all parquet files of a commit, downloaded if they are missing, and checked."""
    need("hf:", "hub", "huggingface_hub")
    from huggingface_hub import HfApi, snapshot_download

    def published(path: Path) -> str:
        """The hash that the hub lists for a file. Where the cache uses links, it is the name of the link's target."""
        if path.is_symlink():
            return path.readlink().name
        name = path.relative_to(root).as_posix()
        info: Any = HfApi().get_paths_info(repo, name, revision=commit, repo_type="dataset")[0]
        return info.lfs.sha256 if info.lfs else info.blob_id

    absent = f"the hub has no dataset {repo}, or a private one"
    with one_sentence(repo, absent, f"cannot download {repo} to {folder}", commit):
        which: dict[str, Any] = {"repo_type": "dataset", "revision": commit, "allow_patterns": ["*.parquet"]}
        root = Path(snapshot_download(repo, cache_dir=folder, **which))
        paths = _tables(root)
        progress.start(f"checking files of {repo}", len(paths))
        for path in paths:
            if not _matches(path, published(path)):
                if path.is_symlink():
                    (path.parent / path.readlink()).unlink()
                path.unlink()
                raise InputError(
                    f"{path.name} of {repo} is not the published file (its hash differs) and was removed; "
                    "run the same command to download it again"
                )
            progress.step()
    return root


def _matches(path: Path, published: str) -> bool:
    """Whether a file has the published hash: by its length a SHA-256, or the SHA-1 that git gives its content."""
    start = hashlib.sha256()
    if len(published) == 40:
        start = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: start).hexdigest() == published
