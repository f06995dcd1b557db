"""The plan for opening a target, from its text, its profile and the configuration."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Backend, nest
from hermes_exec.config import paths, registry
from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import encode
from hermes_exec.terminal.output import DEFAULT_MAX_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec.config.secrets import Secret
    from hermes_exec.config.settings import Settings
    from hermes_exec.observe.audit import Audit
    from hermes_exec.observe.hooks import CommandHooks, LoadedHook

_log = logging.getLogger("hermes_exec.config")


class Plan:
    """All decisions that are made before a target is opened.

    ``place`` is the ``place`` of a backend that was opened earlier (empty where opening created nothing): the target
    is found again instead of created. With ``adopt``, closing it then deletes what the backend created.

    A Profile is opened as the profile of that content in a configuration file. A Backend has a profile already; the
    configuration is not read for it.

    Raises:
        ConfigError: the target or the configuration is invalid.
        Unsupported: the target is known, but not part of this version.
        UsageError: the target is of another type, or a Backend cannot do what its profile says.
    """

    def __init__(
        self,
        target: str | Profile | Backend | None,
        settings: Settings | None = None,
        *,
        place: str | None = None,
        adopt: bool = False,
    ) -> None:
        self.target = ""
        self.cwd: str | None = None
        self.env: dict[str, str] = {}
        self.carrier = "auto"
        self.lease_s = 900.0
        self.lease_given = False
        """Whether the user chose the lease, so that it is not the default."""
        self.job_lease_s: float | None = None
        self.max_output = DEFAULT_MAX_OUTPUT
        self.timeout_s: float | None = None
        self.session: dict[str, Any] = {}
        self.python: str | None = None
        self.secrets: list[Secret] = []
        self.logs = False
        """Whether a file sets other log settings than the default ones."""
        self._audit_limits: dict[str, int] = {}
        self._audits = True
        self._hooks: tuple[LoadedHook, ...] = ()
        if isinstance(target, Backend):
            _refuse_dropped(target)
            self.backend = target
            if target.profile is not None:
                self._take(target.profile)
            self.lease_s, self.lease_given = target.options.lease_s, True
        elif (target is None or target == "local") and settings is None and is_unconfigured(os.environ):
            self.backend = registry.find_backend_class("local")()
        else:
            self._resolve(target, settings, place or "")
        reopen = place is not None
        self.backend.options = replace(self.backend.options, reopen=reopen, take_ownership=bool(place) and adopt)
        self.target = self.target or self.backend.target

    def _resolve(self, target: str | Profile | None, settings: Settings | None, place: str) -> None:
        from hermes_exec.config.load import load_settings, resolve  # pydantic takes 0.2 s to import
        from hermes_exec.config.targets import parse_profile

        if target is not None and not isinstance(target, str):
            _check_profile(target)
        if settings is None:
            settings = load_settings()
            for warning in settings.warnings:
                _log.warning("%s", warning)
        if target is None or isinstance(target, str):
            resolved = resolve(target, settings)
        else:
            resolved = parse_profile(target, settings.profiles)
        self.target = str(resolved)
        self._take(resolved.profile)
        self.logs = settings.log != type(settings.log)()
        self._audits = settings.audit.enabled
        self._audit_limits = {"max_bytes": settings.audit.max_bytes, "keep": settings.audit.keep}
        if settings.hooks:
            from hermes_exec.observe.hooks import load_hooks

            self._hooks = load_hooks(settings.hooks)
        self.timeout_s = settings.limits.timeout_s
        if settings.limits.max_output is not None:
            self.max_output = settings.limits.max_output
        created = place.split("+") + [""] * len(resolved.chain)
        self.backend = self._nest_backends([_at(*each) for each in zip(resolved.chain, created, strict=False)])

    def _nest_backends(self, chain: Sequence[Profile]) -> Backend:
        """Return the backend of the innermost target, nested in the targets that it is inside of."""
        from hermes_exec.wrapper import PreparedBackend

        outermost = chain[-1]
        backend = registry.find_backend_class(outermost.type).from_profile(outermost)
        for outside, profile in zip(chain[:0:-1], chain[-2::-1], strict=True):
            prepared = PreparedBackend.of(backend, outside, self._variables(outside))
            backend = nest(registry.find_backend_class(profile.type), profile, prepared)
        return backend

    def _variables(self, profile: Profile) -> dict[str, str]:
        """Return the variables of a profile; looks its secrets up and remembers them."""
        from hermes_exec.config.secrets import resolve_secrets

        secrets = resolve_secrets(profile.secrets, os.environ)
        self.secrets += secrets.values()
        return {**profile.env, **{name: secret.reveal() for name, secret in secrets.items()}}

    def _take(self, profile: Profile) -> None:
        self.cwd = profile.cwd
        self.env = self._variables(profile)
        self.carrier = profile.carrier
        self.lease_s, self.lease_given = profile.lease_s, "lease_s" in profile.model_fields_set
        self.job_lease_s = profile.job_lease_s
        self.max_output = profile.max_output
        self.python = profile.python
        if profile.shell:
            self.session["shell"] = encode(profile.shell)
        if profile.login:
            self.session["login"] = True
        if profile.setup:
            self.session["setup"] = [encode(line) for line in profile.setup]

    def redact(self, text: str) -> str:
        """Return ``text`` without the secrets that are known by now."""
        if not self.secrets:
            return text
        from hermes_exec.observe.redact import Redactor

        return Redactor(self.secrets).redact(text)

    def create_audit(self, *, wanted: bool | None) -> Audit | None:
        """Return the audit of this terminal, or None."""
        if not (self._audits if wanted is None else wanted):
            return None
        from hermes_exec.observe.audit import Audit
        from hermes_exec.observe.redact import Redactor

        return Audit(paths.audit_file(os.environ), Redactor(self.secrets), **self._audit_limits)

    def create_hooks(self) -> CommandHooks | None:
        """Return the hooks of a new terminal, or None when the configuration names none."""
        if not self._hooks:
            return None
        from hermes_exec.observe.hooks import CommandHooks
        from hermes_exec.observe.redact import Redactor

        return CommandHooks(self._hooks, Redactor(self.secrets))


def _check_profile(target: object) -> None:
    """Refuse an object that is not a Profile, or not of its type's class; its content is not repeated."""
    from hermes_exec.config.profile import Profile

    if not isinstance(target, Profile):
        given = type(target).__name__
        raise UsageError(
            f"target: open takes a profile's name, a one-line target, a Profile, a Backend or None, not {given}",
            remedy='"local", "docker:IMAGE", "ssh://USER@HOST" or DockerProfile(image="IMAGE")',
        )
    model = registry.find_profile_model(target.type)
    if not isinstance(target, model):
        raise UsageError(
            f"a {type(target).__name__} cannot be a profile of the type {target.type!r}",
            remedy=f"{model.__name__} of {model.__module__}",
        )


def _refuse_dropped(backend: Backend) -> None:
    """Refuse a Backend whose outer target would not receive fields of its profile."""
    from hermes_exec.wrapper import PreparedBackend

    profile, outer = backend.profile, getattr(backend, "outer", None)
    if profile is not None and profile.via and (outer is None or outer.target == "local") and profile.via != "local":
        raise UsageError(
            f"{backend.target}: this Backend is not inside of {profile.via!r}, which its profile names as 'via'",
            remedy="open the profile itself",
        )
    while outer is not None:
        prepared, outside = (
            isinstance(outer, PreparedBackend),
            outer.outer if isinstance(outer, PreparedBackend) else outer,
        )
        wanted = [] if prepared or outside.profile is None else _list_command_fields(outside.profile)
        if wanted:
            raise UsageError(
                f"{outside.target}: a Backend outside of another one cannot apply {', '.join(wanted)} of its profile",
                remedy="open a Profile whose 'via' names the outer target",
            )
        outer = getattr(outside, "outer", None)


def _list_command_fields(profile: Profile) -> list[str]:
    """Return the fields by which a profile changes the commands that run in its target."""
    return [name for name in ("cwd", "env", "secrets", "setup", "login") if getattr(profile, name)]


def _at(profile: Profile, name: str) -> Profile:
    """Return the profile of a target that this profile created and that is called ``name`` now."""
    return profile.model_copy(update={profile.attach_field: name}) if name and profile.attach_field else profile


def is_unconfigured(environ: Mapping[str, str]) -> bool:
    """Return whether no file and no variable configures anything; a cheap check for the most frequent case."""
    if any(name.startswith("HERMES_EXEC_") for name in environ):
        return False
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return False
    return not paths.may_exist(paths.user_file(environ)) and paths.find_project_file(here) is None
