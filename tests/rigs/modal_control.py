"""The control plane of the Modal of the tests, but for sandboxes: who may ask, apps, images, secrets, volumes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from tests.rigs.modal_dispatch import serves
from tests.rigs.modal_wheel import api, empty

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.rigs.modal_state import State

TOKEN_ID, TOKEN_SECRET = "ak-test", "as-test"
_BUILDER = "2025.06"
_CREATE = {api.OBJECT_CREATION_TYPE_CREATE_IF_MISSING, api.OBJECT_CREATION_TYPE_EPHEMERAL}
_DONE = api.GenericResult(status=api.GenericResult.GENERIC_STATUS_SUCCESS)


class Control:
    """Everything that is asked of the control plane beside sandboxes."""

    def __init__(self, state: State) -> None:
        self._state = state

    def admit(self, name: str, request: Any, metadata: Any) -> None:
        """assumed: a wrong token is UNAUTHENTICATED at the first request (source: the SDK's AuthError)."""
        given = metadata.get("x-modal-token-id"), metadata.get("x-modal-token-secret")
        if given != (TOKEN_ID, TOKEN_SECRET):
            raise GRPCError(Status.UNAUTHENTICATED, "Token ID not found")
        if name.endswith("V2") and name.startswith("Sandbox"):
            self._state.check_token(str(metadata.get("x-modal-auth-token", "")))

    @serves("ClientHello")
    async def client_hello(self, request: Any) -> Any:
        return api.ClientHelloResponse(image_builder_version=_BUILDER)

    @serves("AuthTokenGet")
    async def auth_token(self, request: Any) -> Any:
        return api.AuthTokenGetResponse(token=self._state.token())

    @serves("EnvironmentGetOrCreate", fields="deployment_name object_creation_type")
    async def environment(self, request: Any) -> Any:
        settings = api.EnvironmentSettings(image_builder_version=_BUILDER)
        metadata = api.EnvironmentMetadata(name=request.deployment_name or "main", settings=settings)
        return api.EnvironmentGetOrCreateResponse(environment_id="en-1", metadata=metadata)

    @serves("AppGetOrCreate", fields="app_name environment_name object_creation_type")
    async def app(self, request: Any) -> Any:
        key = f"{request.environment_name}/{request.app_name}"
        if key not in self._state.apps:
            if request.object_creation_type not in _CREATE:
                raise GRPCError(Status.NOT_FOUND, f"App {request.app_name!r} not found")
            self._state.apps[key] = self._state.new_id("ap")
        return api.AppGetOrCreateResponse(app_id=self._state.apps[key])

    @serves(
        "ImageGetOrCreate",
        fields="app_id image.* existing_image_id build_function_id namespace builder_version allow_global_deployment",
    )
    async def image(self, request: Any) -> Any:
        """assumed: an image is known by its definition; RUN lines are not run, the system of this machine is used."""
        for name in request.image.secret_ids:
            if name not in self._state.secrets:
                raise GRPCError(Status.NOT_FOUND, f"Secret {name} not found")
        image_id = f"im-{hashlib.sha256(request.image.SerializeToString(deterministic=True)).hexdigest()[:22]}"
        if self._state.build_failure:
            failed = api.GenericResult(
                status=api.GenericResult.GENERIC_STATUS_FAILURE, exception=self._state.build_failure
            )
            return api.ImageGetOrCreateResponse(image_id=image_id, result=failed)
        known = image_id in self._state.images
        self._state.images.setdefault(image_id, request.image)
        metadata = api.ImageMetadata(image_builder_version=_BUILDER, python_version_info="3.11")
        result = _DONE if known else None  # a new one has to be waited for
        return api.ImageGetOrCreateResponse(image_id=image_id, result=result, metadata=metadata)

    @serves("ImageJoinStreaming", fields="image_id timeout last_entry_id")
    async def image_join(self, request: Any) -> AsyncIterator[Any]:
        yield api.ImageJoinStreamingResponse(result=_DONE, eof=True, entry_id="1")

    @serves("ImageFromId", fields="image_id")
    async def image_from_id(self, request: Any) -> Any:
        if request.image_id not in self._state.images:
            raise GRPCError(Status.NOT_FOUND, f"Image with ID {request.image_id} not found")
        return api.ImageFromIdResponse(image_id=request.image_id)

    @serves("ImagePublish", fields="image_id tag")
    async def image_publish(self, request: Any) -> Any:
        self._state.tags[request.tag] = request.image_id
        return api.ImagePublishResponse()

    @serves("ImageGetByTag", fields="tag")
    async def image_by_tag(self, request: Any) -> Any:
        image_id = self._state.tags.get(request.tag)
        if image_id is None or image_id not in self._state.images:
            raise GRPCError(Status.NOT_FOUND, f"Image {request.tag!r} not found")
        return api.ImageGetByTagResponse(image_id=image_id)

    @serves("ImageDelete", fields="image_id")
    async def image_delete(self, request: Any) -> Any:
        if self._state.images.pop(request.image_id, None) is None:
            raise GRPCError(Status.NOT_FOUND, f"Image with ID {request.image_id} not found")
        return empty.Empty()

    @serves("MountGetOrCreate", fields="deployment_name namespace environment_name object_creation_type")
    async def mount(self, request: Any) -> Any:
        return api.MountGetOrCreateResponse(mount_id=f"mo-{request.deployment_name}")

    @serves(
        "SecretGetOrCreate",
        fields="deployment_name environment_name object_creation_type env_dict app_id required_keys",
    )
    async def secret(self, request: Any) -> Any:
        if request.deployment_name:
            secret_id = self._state.secret_names.get(request.deployment_name)
            if secret_id is None:
                raise GRPCError(Status.NOT_FOUND, f"Secret {request.deployment_name!r} not found")
        else:
            secret_id = self._state.new_id("st")
            self._state.secrets[secret_id] = dict(request.env_dict)
        return api.SecretGetOrCreateResponse(secret_id=secret_id)

    @serves("VolumeGetOrCreate", fields="deployment_name environment_name object_creation_type create_options")
    async def volume(self, request: Any) -> Any:
        name = f"vo-{request.deployment_name}"
        if name not in self._state.volumes:
            if request.object_creation_type not in _CREATE:
                raise GRPCError(Status.NOT_FOUND, f"Volume {request.deployment_name!r} not found")
            folder = self._state.folder / name
            folder.mkdir()
            self._state.volumes[name] = folder
        version = api.VOLUME_FS_VERSION_V1
        metadata = api.VolumeMetadata(version=version, name=request.deployment_name)
        return api.VolumeGetOrCreateResponse(volume_id=name, version=version, metadata=metadata)
