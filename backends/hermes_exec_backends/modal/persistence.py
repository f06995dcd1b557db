"""Storage of a sandbox's files between two openings, as an image under the profile's name.

A kept sandbox costs nothing: its files are an image, and the sandbox ends. The next ``open`` of the same profile
starts from that image; the previous image is deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.modal.account import sdk
from hermes_exec_backends.modal.create import image_name
from hermes_exec_backends.modal.errors import NotFound

if TYPE_CHECKING:
    from hermes_exec_backends.modal.account import Account
    from hermes_exec_backends.modal.sandbox import Sandbox
    from hermes_exec_backends.profiles.modal import ModalProfile

_log = logging.getLogger("hermes_exec.place")


async def find_kept_image(account: Account, profile: ModalProfile, name: str) -> Any:
    """Return the image that is published as ``name``, or None.

    Raises:
        PlaceUnavailable: Modal does not answer.
    """

    async def look() -> Any:
        image = sdk().Image.from_name(name, environment_name=profile.environment, client=account.client)
        return await image.build.aio(account.app)

    try:
        return await account.call(f"modal: the image {name!r}", look())
    except NotFound:
        return None


async def save_image(account: Account, profile: ModalProfile, sandbox: Sandbox, name: str = "") -> str:
    """Save the sandbox's files as ``name``, or without a name; return the image's ID.

    Raises:
        PlaceUnavailable: they could not be saved; previously kept files remain.
    """
    before = await find_kept_image(account, profile, name) if name else None
    image = await sandbox.snapshot()
    if name:
        await account.call(
            f"modal: the image {name!r}",
            image.publish.aio(name, environment_name=profile.environment, client=account.client),
        )
    if before is not None and before.object_id != image.object_id:
        await _forget(account, str(before.object_id))
    return str(image.object_id)


async def hibernate(account: Account, profile: ModalProfile, sandbox: Sandbox) -> str:
    """Keep the files under the profile's name, if it has one, and end the sandbox; return the image's ID.

    Raises:
        PlaceUnavailable: the files could not be kept; the sandbox continues until its lease ends.
    """
    image_id = await save_image(account, profile, sandbox, image_name(profile) if profile.name else "")
    await sandbox.terminate()
    return image_id


async def _forget(account: Account, image_id: str) -> None:
    try:
        await account.call(
            f"modal: the image {image_id}", sdk().experimental.image_delete.aio(image_id, client=account.client)
        )
    except PlaceUnavailable as error:
        _log.warning("an image that is needed no more is still there: %s", error.what)
