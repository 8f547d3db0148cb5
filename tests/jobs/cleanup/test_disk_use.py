"""What fills the disk: by kind, by job and by person."""

from __future__ import annotations

import os

from jobs import support
from jobs.support import ME, WORKSPACE
from torchyard.data.datastores import BLOB_STORE
from torchyard.jobs.cleanup import disk_use
from torchyard.jobs.files import artifacts
from torchyard.jobs.services import Services


def test_each_part_has_its_kind_job_and_owner(services: Services) -> None:
    job = support.submit(services, name="big", outputs={"best": None})
    with artifacts.writing(services.datastores, job, "outputs/model.pt") as writing:
        writing.write(b"w" * 5000)
    with artifacts.writing_output(services, job, "best", "x.bin") as writing:
        writing.write(b"b" * 300)
    services.logs.append(WORKSPACE, "big", 1, "user_logs/std_log.txt", 0, b"l" * 200)
    blob = services.blobs.of("default").path(services.blobs.of("default").put_bytes(b"c" * 100))
    linked = services.datastores.root(WORKSPACE, BLOB_STORE) / "LocalUpload" / "abc" / "x"
    linked.parent.mkdir(parents=True)
    os.link(blob, linked)

    use = disk_use.measure(services)

    kinds = use.by_kind()
    assert (kinds["outputs"], kinds["logs"], kinds["data"]) == (5300, 252, 100)
    assert "code" not in kinds  # the upload is the same file
    sizes = [(item.kind, item.size_bytes) for item in use.items if item.name == "big"]
    assert sizes == [("outputs", 5000), ("outputs", 300), ("logs", 252)]
    assert use.by_owner()[ME.user] == 5552
    assert use.total_bytes == sum(kinds.values()) == sum(use.by_owner().values())
    assert use.free_bytes > 0
