"""Who gets in, under which name, with which roles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import Forbidden, TorchyardError
from torchyard.sign_in import admission
from torchyard.sign_in.settings import Grant, OidcSettings
from torchyard.workspaces import people
from torchyard.workspaces.types import Role
from workspaces.served import Served, served

OIDC = OidcSettings("https://login.example", "torchyard", "https://gpu-box")
BY_NAME = replace(OIDC, link_by_name=True)


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
    settings = replace(BY_NAME, groups={"all": [Grant(Role.READER, "default")]})
    assert _admit(site, settings, preferred_username="carl", groups=["all"]) == "carl"
    assert _roles(site, "carl") == {"default": Role.CONTRIBUTOR}
    _admit(site, settings, preferred_username="carl", groups=[])
    assert _roles(site, "carl") == {"default": Role.CONTRIBUTOR}


def test_a_name_in_another_case_is_not_another_person(site: Served) -> None:
    settings = replace(OIDC, groups={"all": [Grant(Role.READER, "default")]})
    with pytest.raises(Exception, match="`dan` already exists"):
        _admit(site, settings, preferred_username="Dan", groups=["all"])


def test_a_person_who_was_made_again_is_not_the_account_of_before(site: Served) -> None:
    assert _admit(site, BY_NAME, preferred_username="dan") == "dan"
    site.ok("home", "DELETE", "/v1/users/dan")
    with pytest.raises(Forbidden, match="no account"):
        _admit(site, BY_NAME, preferred_username="dan")
    site.add("dan", "reader")
    assert _admit(site, BY_NAME, sub="s-2", preferred_username="dan") == "dan"
    with pytest.raises(Forbidden, match="another account"):
        _admit(site, BY_NAME, preferred_username="dan")


@pytest.mark.parametrize("groups", [[], ["all"]])
def test_a_name_alone_is_not_proof_of_a_person_who_is_here(site: Served, groups: list[str]) -> None:
    settings = replace(OIDC, groups={"all": [Grant(Role.OWNER, "default")]})
    with pytest.raises(Forbidden, match="`carl` exists on this server") as refused:
        _admit(site, settings, sub="s x", preferred_username="carl", groups=groups)
    assert refused.value.hint.endswith("`yard user link carl 's x'`")
    assert _roles(site, "carl") == {"default": Role.CONTRIBUTOR}
    _link(site, "carl", "s-carl")
    assert _admit(site, settings, sub="s-carl", preferred_username="somebody") == "carl"
    with pytest.raises(Forbidden, match="is another account"):
        _admit(site, settings, sub="s x", preferred_username="carl", groups=groups)


def test_an_owner_alone_links_an_account_and_to_one_person(site: Served) -> None:
    owner = site.ok("home", "GET", "/v1/whoami")["user"]
    site.refused("carl", "PUT", "/v1/sign-in/accounts/carl", {"subject": "s-1"})
    _link(site, "carl", "s-1")
    _link(site, "carl", "s-1")
    for person, subject, message in (
        ("carl", "s-2", "`carl` is linked to another account"),
        ("dan", "s-1", "the account is linked to `carl`"),
        ("nobody", "s-3", "nobody"),
        (owner, "s-3", "owns the server's home folder"),
        *(("dan", subject, "`subject` must have") for subject in ("", "s" * 256, "a\nb", "ä")),
    ):
        with pytest.raises(TorchyardError, match=message):
            _link(site, person, subject)


def _link(site: Served, person: str, subject: str) -> None:
    services = site.parts.services
    people.link(services.db, services.clock, OIDC.issuer, subject, person)


def test_expired_sign_ins_are_removed(site: Served) -> None:
    from datetime import timedelta

    from torchyard.base.clock import FakeClock

    services = site.parts.services
    clock = FakeClock(services.clock.now())
    for _ in range(3):
        admission.new_session(services.db, clock, OIDC, "dan")
    clock.advance(timedelta(hours=25).total_seconds())
    name, _ = admission.new_session(services.db, clock, OIDC, "dan")
    names = [token.name for token in people.tokens(services.db, "dan")]
    assert names == ["first", name]


def test_unlinking_ends_sign_ins_and_not_other_tokens(site: Served) -> None:
    services = site.parts.services
    _admit(site, BY_NAME, preferred_username="dan")
    admission.new_session(services.db, services.clock, OIDC, "dan")
    site.refused("dan", "DELETE", "/v1/users/dan/sign-in")
    assert site.ok("home", "DELETE", "/v1/users/dan/sign-in")["unlinked"] == 1
    assert [token.name for token in people.tokens(services.db, "dan")] == ["first"]
    assert _admit(site, BY_NAME, sub="s-9", preferred_username="dan") == "dan"


def test_a_server_without_sign_in_says_so(site: Served) -> None:
    assert site.client.get("/v1/sign-in").json() == {"oidc": None}
    answer = site.client.get("/v1/sign-in/start")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "no_sign_in"
