"""Models on the Hugging Face hub, `OWNER/NAME` or `OWNER/NAME@REVISION`: the two files that `store` writes and reads.

Downloads go to the hub's own cache, and every error is one sentence. Datasets on the hub are in data/hub_datasets.py.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from npdraw.errors import InputError
from npdraw.extras import need

if TYPE_CHECKING:
    from npdraw.model import NPDraw

CARD = """---
library_name: npdraw
pipeline_tag: unconditional-image-generation
---

A model for [npdraw](https://arxiv.org/abs/2106.13435), which draws images part by part:

```python
from npdraw import NPDraw

images = NPDraw.from_pretrained("{repo}").sample(16, seed=0).images  # (16, C, H, W) in [0, 1]
```
"""


def is_repository(source: str | Path) -> bool:
    """Whether a word is OWNER/NAME, with or without a revision. If there is a folder OWNER, the word is a path."""
    found = re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", str(source), re.ASCII)
    return found is not None and not Path(source).parent.is_dir()


@cache  # a name is looked up once per process, so it always means the same commit
def download(source: str) -> Path:
    """The folder with config and weights of a repository, downloaded if they are missing."""
    from npdraw.store import SETTINGS, WEIGHTS

    need(f"{source} is not a folder here, and a model of the hub", "hub", "huggingface_hub")
    from huggingface_hub import snapshot_download

    repo, _, revision = source.partition("@")
    absent = f"{repo} is not a folder here, and the hub has no model of that name, or it is private"
    with one_sentence(repo, absent, f"cannot download {repo}", revision):
        found = Path(snapshot_download(repo, revision=revision or None, allow_patterns=[SETTINGS, WEIGHTS]))
    if not (found / SETTINGS).is_file() or not (found / WEIGHTS).is_file():
        raise InputError(f"{repo} on the hub is not an npdraw model: it lacks {SETTINGS} or {WEIGHTS}")
    return found


def upload(model: "NPDraw", repo: str, private: bool, message: str) -> str:
    """Write a model to a repository on the hub, which is created if it is missing: the address of the commit."""
    from npdraw.files import write_text
    from npdraw.store import save_model

    need("the hub", "hub", "huggingface_hub")
    from huggingface_hub import HfApi

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo, re.ASCII):
        raise InputError(f"a model on the hub is OWNER/NAME, not {repo!r}")
    api, failed = HfApi(), f"cannot upload to {repo}"
    with TemporaryDirectory() as folder, one_sentence(repo, failed, failed):
        save_model(model, folder)
        api.create_repo(repo, private=private, exist_ok=True)
        if not api.file_exists(repo, "README.md"):  # an existing card is not changed
            write_text(Path(folder) / "README.md", CARD.format(repo=repo))
        return str(api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message).commit_url)


@contextmanager
def one_sentence(repo: str, absent: str, failed: str, revision: str = "") -> Iterator[None]:
    """Turn every error of the hub into one sentence. `absent` and `failed` are the beginnings of two of them."""
    from huggingface_hub import errors

    try:
        yield
    except InputError:
        raise
    except errors.GatedRepoError as error:
        raise InputError(
            f"{repo} is gated: ask its owner for access on its page, then log in with `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(f"{absent}; check the name, or log in with `hf auth login`") from error
    except errors.RevisionNotFoundError as error:
        raise InputError(f"{repo} has no commit {revision}; copy one from its page on the hub") from error
    except Exception as error:  # httpx, xet and the disk raise their own errors, of several lines each
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
        lines = [*filter(None, map(str.strip, str(cause).splitlines())), type(cause).__name__]
        raise InputError(
            f"{failed} ({lines[0].rstrip('.')}); check the network and the free disk space, "
            "then run the same command again"
        ) from error
