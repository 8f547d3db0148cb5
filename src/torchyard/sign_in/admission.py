"""From an ID token's claims to a person of this server.

Owns: who gets in, under which name, and the roles that groups give.
Leaves: the claims' truth to provider.py, people and roles to workspaces/people.py and its store.
Always: an account at the provider stays one person here, whatever its name becomes, and a name that
is taken is never given to another account; a person who is here before gets an account by an
owner's word or by a name that the settings trust; a removed person does not get in; the owner of
the home folder does not sign in here.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.errors import Forbidden
from torchyard.sign_in.settings import OidcSettings
from torchyard.workspaces import people
from torchyard.workspaces.types import Role

BY = "oidc"
_CREATE = "ask one of its owners: `yard user create {} --no-token`"


def admit(db: Database, clock: Clock, settings: OidcSettings, claims: Mapping[str, Any]) -> str:
    """The name of the person whose claims these are; their groups' roles are granted.

    Raises:
        Forbidden: they have no account here, or it was removed, or belongs to somebody else.
    """
    subject = str(claims["sub"])
    if not people.is_subject(subject):
        raise Forbidden(
            "the provider's ID token names nobody", "ask the administrator of the provider"
        )
    roles = _roles_of_groups(settings, claims)
    with db.write() as connection:
        user = people.user_of_subject(connection, settings.issuer, subject)
        if user is None:
            user = _name_of(settings, claims)
            _claim(connection, clock, settings, user, subject, bool(roles))
        elif not people.is_present(connection, user):
            raise _not_here(settings, user, subject)
        people.grant_from_groups(connection, user, roles, BY, clock.now())
    return user


def new_session(
    db: Database, clock: Clock, settings: OidcSettings, user: str, lifetime: timedelta | None = None
) -> tuple[str, str]:
    """(name, text) of a token for a person who signed in; their expired sign-ins are removed.

    Args:
        lifetime: the settings' unless it is given.

    Raises:
        NotFound: they were removed meanwhile.
    """
    people.drop_expired(db, clock, user, people.SIGN_IN_TOKENS)
    now = clock.now()
    name = f"{people.SIGN_IN_TOKENS}{to_text(now)[:10]}-{secrets.token_hex(3)}"
    return name, people.new_token(db, clock, user, name, now + (lifetime or settings.session))


def _claim(
    connection: Connection,
    clock: Clock,
    settings: OidcSettings,
    user: str,
    subject: str,
    may_create: bool,
) -> None:
    """Bind the account to the person of this name, for good.

    Raises:
        Forbidden: the person is not here, has another account, or needs an owner's word.
    """
    if not people.is_present(connection, user):
        if people.is_removed(connection, user) or not may_create:
            raise _not_here(settings, user, subject)
        people.add_without_role(connection, user, clock.now())
    elif people.owns_home(connection, user):
        raise Forbidden(
            f"`{user}` owns the server's home folder, and signs in on the server's machine only",
            "ask an owner for an account under another name",
        )
    elif people.subject_of(connection, settings.issuer, user) is not None:
        raise Forbidden(
            f"`{user}` is another account of `{settings.issuer}`",
            f"if theirs was made again, an owner runs `yard user unlink {user}`, then "
            f"`{_link(user, subject)}`",
        )
    elif not settings.trusts_names:
        raise Forbidden(
            f"`{user}` exists on this server, and this account of `{settings.issuer}` is not "
            "linked to them",
            f"if it is yours, ask an owner of the server: `{_link(user, subject)}`",
            code="account_not_linked",
        )
    people.bind_subject(connection, settings.issuer, subject, user, clock.now())


def _name_of(settings: OidcSettings, claims: Mapping[str, Any]) -> str:
    claim = settings.name_claim
    name = claims.get(claim)
    if not isinstance(name, str) or not people.is_name(name):
        raise Forbidden(
            f"the provider's claim `{claim}` is `{str(name)[:80]}`, which is not a valid name",
            "an owner of the server chooses another one as `name_claim`",
        )
    if claim == "email" and claims.get("email_verified") is not True:
        raise Forbidden(
            f"the provider has not verified the address `{name}`",
            "verify it there, then sign in again",
        )
    return name


def _roles_of_groups(settings: OidcSettings, claims: Mapping[str, Any]) -> dict[str, Role]:
    """The highest role by workspace; empty is every workspace."""
    groups = claims.get(settings.groups_claim)
    names = [groups] if isinstance(groups, str) else groups
    if not isinstance(names, list):
        return {}
    roles: dict[str, Role] = {}
    for group in names:
        grants = settings.groups.get(group, ()) if isinstance(group, str) else ()
        for grant in grants:
            before = roles.get(grant.workspace)
            if before is None or before.rank < grant.role.rank:
                roles[grant.workspace] = grant.role
    return roles


def _not_here(settings: OidcSettings, user: str, subject: str) -> Forbidden:
    then = "" if settings.trusts_names else f", then `{_link(user, subject)}`"
    return Forbidden(
        f"you are signed in as `{user}`, who has no account on this server",
        _CREATE.format(user) + then,
        code="no_account",
    )


def _link(user: str, subject: str) -> str:
    return f"yard user link {user} {shlex.quote(subject)}"
