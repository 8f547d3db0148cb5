"""A lock's packages and its bill of materials."""

from __future__ import annotations

from datetime import datetime, timezone

from torchyard.releases.vulnerabilities import locked

LOCK = """--extra-index-url https://example.org/simple
numpy==2.1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
six==1.17.0
torch==2.13.0+cpu \\
    --hash=sha256:cc
"""
AT = datetime(2026, 6, 30, tzinfo=timezone.utc)


def test_every_hash_of_the_lock_is_in_the_bill_of_materials() -> None:
    locked_packages = locked.packages(LOCK, ("horovod",))
    bill = locked.bill_of_materials("vision", "2", "linux-x86_64-cpu", locked_packages, LOCK, AT)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    by_name = {component["name"]: component for component in bill["components"]}
    assert [each["content"] for each in by_name["numpy"]["hashes"]] == ["aa", "bb"]
    assert by_name["torch"]["purl"] == "pkg:pypi/torch@2.13.0%2Bcpu"
    assert by_name["horovod"]["purl"].startswith("pkg:generic/horovod@")
    assert "hashes" not in by_name["six"]
    assert len(bill["dependencies"][0]["dependsOn"]) == 4


def test_the_same_lock_is_the_same_document() -> None:
    locked_packages = locked.packages(LOCK)
    bills = [
        locked.bill_of_materials("vision", "2", "linux-x86_64-cpu", locked_packages, lock, AT)
        for lock in (LOCK, LOCK, LOCK + "extra==1\n")
    ]
    assert bills[0] == bills[1]
    assert bills[0]["serialNumber"] != bills[2]["serialNumber"]


def test_packages_that_can_not_be_verified_are_named() -> None:
    assert locked.without_hash(LOCK) == ["six"]
