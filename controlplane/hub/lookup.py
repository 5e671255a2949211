"""Asking the hub what a revision is and holds."""

from __future__ import annotations

from dataclasses import dataclass

from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError
from huggingface_hub.hf_api import RepoSibling

from controlplane.hub.cache import is_commit
from controlplane.hub.failures import HubUnreachable
from controlplane.hub.files import HubFile
from controlplane.hub.session import TIMEOUT
from controlplane.hub.translation import NOT_A_HUB


@dataclass(frozen=True, slots=True)
class Resolved:
    """A revision's commit and its files."""

    commit: str
    files: tuple[HubFile, ...]


def resolve(endpoint: str, token: str | None, model: str, revision: str) -> Resolved:
    """The commit that `revision` of `model` stands for now, and what it holds.

    Raises what the hub client raises; `translation.translate` says what that means.
    """
    api = HfApi(endpoint=endpoint, token=token or False)
    try:
        info = api.model_info(model, revision=revision, files_metadata=True, timeout=TIMEOUT)
    except HFValidationError:
        raise
    except (ValueError, KeyError, TypeError) as e:  # a sign-in page, or JSON of another shape
        raise HubUnreachable(NOT_A_HUB) from e
    if info.sha is None or not is_commit(info.sha):
        raise HubUnreachable(NOT_A_HUB)
    return Resolved(info.sha, tuple(_file(s) for s in info.siblings or ()))


def _file(sibling: RepoSibling) -> HubFile:
    if sibling.lfs is not None:
        sha = sibling.lfs.sha256
        return HubFile(sibling.rfilename, sibling.lfs.size, sha, sha)
    return HubFile(sibling.rfilename, sibling.size or 0, sibling.blob_id or "unknown")
