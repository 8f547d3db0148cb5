"""Who gets in, under which name, with which roles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import Forbidden
from torchyard.sign_in import admission
from torchyard.sign_in.settings import Grant, OidcSettings
from torchyard.workspaces import people
from torchyard.workspaces.types import Role
from workspaces.served import Served, served

OIDC = OidcSettings("https://login.example", "torchyard", "https://gpu-box")


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        yield made


def _admit(site: Served, settings: OidcSettings = OIDC, **claims: Any) -> str:
    services = site.parts.services
    return admission.admit(services.db, services.clock, settings, {"sub": "s-1", **claims})


def _roles(site: Served, name: str) -> dict[str, Role]:
    return people.roles_of(site.parts.services.db, name)


def test_an_address_counts_only_when_it_is_verified(site: Served) -> None:
    by_email = replace(OIDC, name_claim="email")
    site.add("dan@lab.example", "reader")
    for verified in (None, False, "true"):
        with pytest.raises(Forbidden, match="has not verified"):
            _admit(site, by_email, email="dan@lab.example", email_verified=verified)
    name = _admit(site, by_email, email="dan@lab.example", email_verified=True)
    assert name == "dan@lab.example"


@pytest.mark.parametrize("name", [None, "", 5, ["dan"], "../dan", "d" * 65, "dän", "-dan"])
def test_an_odd_name_does_not_get_in(site: Served, name: Any) -> None:
    with pytest.raises(Forbidden, match="not a valid name"):
        _admit(site, preferred_username=name)


@pytest.mark.parametrize("subject", ["", "s" * 256])
def test_an_odd_subject_does_not_get_in(site: Served, subject: str) -> None:
    with pytest.raises(Forbidden, match="names nobody"):
        _admit(site, sub=subject, preferred_username="dan")


def test_groups_give_roles_and_take_them_back(site: Served) -> None:
    site.ok("home", "POST", "/v1/workspaces", {"name": "vision"})
    groups = {
        "all": [Grant(Role.READER, "default"), Grant(Role.CONTRIBUTOR, "vision")],
        "leads": [Grant(Role.OWNER, "vision"), Grant(Role.READER, "no-such-workspace")],
    }
    settings = replace(OIDC, groups=groups)
    assert _admit(site, settings, preferred_username="ida", groups=["all", "leads", 5]) == "ida"
    assert _roles(site, "ida") == {"default": Role.READER, "vision": Role.OWNER}
    _admit(site, settings, preferred_username="ida", groups="all")
    assert _roles(site, "ida") == {"default": Role.READER, "vision": Role.CONTRIBUTOR}
    _admit(site, settings, preferred_username="ida")
    assert _roles(site, "ida") == {}


def test_what_an_owner_granted_stays(site: Served) -> None:
    settings = replace(OIDC, groups={"all": [Grant(Role.READER, "default")]})
    assert _admit(site, settings, preferred_username="carl", groups=["all"]) == "carl"
    assert _roles(site, "carl") == {"default": Role.CONTRIBUTOR}
    _admit(site, settings, preferred_username="carl", groups=[])
    assert _roles(site, "carl") == {"default": Role.CONTRIBUTOR}


def test_a_name_in_another_case_is_not_another_person(site: Served) -> None:
    settings = replace(OIDC, groups={"all": [Grant(Role.READER, "default")]})
    with pytest.raises(Exception, match="`dan` already exists"):
        _admit(site, settings, preferred_username="Dan", groups=["all"])


def test_a_person_who_was_made_again_is_not_the_account_of_before(site: Served) -> None:
    assert _admit(site, preferred_username="dan") == "dan"
    site.ok("home", "DELETE", "/v1/users/dan")
    with pytest.raises(Forbidden, match="no account"):
        _admit(site, preferred_username="dan")
    site.add("dan", "reader")
    assert _admit(site, sub="s-2", preferred_username="dan") == "dan"
    with pytest.raises(Forbidden, match="another account"):
        _admit(site, preferred_username="dan")


def test_expired_sign_ins_are_removed(site: Served) -> None:
    from datetime import timedelta

    from torchyard.base.clock import FakeClock

    services = site.parts.services
    clock = FakeClock(services.clock.now())
    for _ in range(3):
        admission.new_session(services.db, clock, OIDC, "dan")
    clock.advance(timedelta(hours=25).total_seconds())
    name, _ = admission.new_session(services.db, clock, OIDC, "dan")
    held = [token.name for token in people.tokens(services.db, "dan")]
    assert held == ["first", name]


def test_unlinking_ends_sign_ins_and_not_other_tokens(site: Served) -> None:
    services = site.parts.services
    _admit(site, preferred_username="dan")
    admission.new_session(services.db, services.clock, OIDC, "dan")
    site.refused("dan", "DELETE", "/v1/users/dan/sign-in")
    assert site.ok("home", "DELETE", "/v1/users/dan/sign-in")["unlinked"] == 1
    assert [token.name for token in people.tokens(services.db, "dan")] == ["first"]
    assert _admit(site, sub="s-9", preferred_username="dan") == "dan"


def test_a_server_without_sign_in_says_so(site: Served) -> None:
    assert site.client.get("/v1/sign-in").json() == {"oidc": None}
    answer = site.client.get("/v1/sign-in/start")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "no_sign_in"
