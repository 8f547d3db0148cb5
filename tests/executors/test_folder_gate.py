"""Requests through a shared folder, from the node's connection to the server and back."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventually import eventually
from executors import folder_site
from executors.folder_site import ATTEMPT, REPORT, RUN, SERVER_ID, Site
from torchyard.executors import shared_folders
from torchyard.executors.executor import EngineRefused
from torchyard.shared.connection import AttemptOver, Unreachable
from torchyard.shared.folder_link import blocks
from torchyard.shared.folder_link.blocks import LAST, Block, BlockId

_CONNECTION = "ab" * 16
_GET = b"GET /v1/attempts/a1/x HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with folder_site.site(tmp_path) as made:
        yield made


def _until(condition: Callable[[], object]) -> None:
    eventually(condition, "what the gate is to come to")


def _put(site: Site, content: bytes, token: str = REPORT, **keys: int) -> BlockId:
    """A request's only block, as a node with this token would write it."""
    (site.attempt / _CONNECTION).mkdir(mode=0o700, exist_ok=True)
    block = BlockId(ATTEMPT, _CONNECTION, keys.get("request", 1), keys.get("number", 0), False)
    blocks.write(site.attempt / blocks.REQUESTS, block, blocks.key_of(token), Block(LAST, content))
    return block


def _requests(site: Site) -> list[str]:
    return blocks.names(site.attempt / blocks.REQUESTS)


class TestRequests:
    def test_pass_with_their_token_and_leave_no_file(self, site: Site) -> None:
        with site.served():
            link = site.link()
            assert link.call("POST", "/report", {"a": 1}) == {"body": 8}
            assert link.call("GET", "/control", query={"wait": 1}) == {"body": 0}
            link.close()
            assert [(got.method, got.path) for got in site.got] == [
                ("POST", "/v1/attempts/a1/report"),
                ("GET", "/v1/attempts/a1/control?wait=1"),
            ]
            assert site.got[0].headers["Authorization"] == f"Bearer {REPORT}"
            _until(lambda: os.listdir(site.attempt) == [blocks.REQUESTS])
            assert _requests(site) == []

    def test_may_be_signed_by_the_runs_token(self, site: Site) -> None:
        with site.served():
            site.link(RUN).call("GET", "/x")
        assert site.got[0].headers["Authorization"] == f"Bearer {RUN}"

    @pytest.mark.slow
    def test_of_many_blocks_pass_whole_in_chunks_or_of_a_size(self, site: Site) -> None:
        pieces = [os.urandom(3 << 20) for _ in range(16)]
        with site.served():
            link = site.link()
            assert link.send("POST", "/chunks", iter(pieces)) == {"body": 48 << 20}
            link.upload("/sized", iter(pieces), 48 << 20, {})
        assert [got.body for got in site.got] == [b"".join(pieces)] * 2

    def test_get_responses_of_many_blocks_and_streams(self, site: Site) -> None:
        received = bytearray()
        with site.served():
            link = site.link()
            link.download("/file", received.extend)
            assert bytes(received) == bytes(9 << 20)
            received.clear()
            link.download("/stream", received.extend)
        assert bytes(received) == b"x" * 10 + b"y" * (5 << 20)

    def test_of_several_threads_do_not_mix(self, site: Site) -> None:
        link, results = site.link(), {}

        def send(size: int) -> None:
            results[size] = [link.send("POST", "/x", bytes(size)) for _ in range(3)]

        with site.served():
            threads = [threading.Thread(target=send, args=(size,)) for size in range(1, 9)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert results == {size: [{"body": size}] * 3 for size in range(1, 9)}

    def test_are_told_that_the_attempt_is_over(self, site: Site) -> None:
        with site.served(), pytest.raises(AttemptOver):
            site.link().call("POST", "/over", {})

    def test_pass_no_header_that_speaks_for_another(self, site: Site) -> None:
        hostile = b"POST /x HTTP/1.1\r\nX-Forwarded-For: 1.2.3.4\r\nCookie: a=b\r\n"
        hostile += b"Authorization: Bearer root\r\nContent-Length: 2\r\n\r\nokGET /second HTTP/1.1"
        with site.served():
            _put(site, hostile + b"\r\n\r\n")
            _until(lambda: site.got)
            _until(lambda: blocks.names(site.attempt / _CONNECTION))
        got = site.got[0]
        assert got.body == b"ok" and len(site.got) == 1
        assert got.headers["Authorization"] == f"Bearer {REPORT}"
        assert not {"X-Forwarded-For", "Cookie"} & set(got.headers)

    @pytest.mark.parametrize(
        "content",
        [
            b"no request",
            b"CONNECT example:1 HTTP/1.1\r\n\r\n",
            b"GET http://example/ HTTP/1.1\r\n\r\n",
            b"GET //example/ HTTP/1.1\r\n\r\n",
            b"POST /x HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
            b"POST /x HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /x HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        ],
    )
    def test_that_are_none_are_reset(self, site: Site, content: bytes) -> None:
        with site.served():
            block_file = _put(site, content)
            reset = BlockId(ATTEMPT, _CONNECTION, 1, blocks.RESET_NUMBER, True)
            _until(lambda: blocks.names(site.attempt / _CONNECTION))
        assert block_file.name not in _requests(site)
        assert blocks.read(site.attempt / _CONNECTION, reset, blocks.key_of(REPORT)).kind == (
            blocks.RESET
        )
        assert site.got == []


class TestFilesOfOthers:
    def test_without_the_token_are_refused(self, site: Site) -> None:
        with site.served():
            _put(site, _GET, token="another")
            _until(lambda: not _requests(site))
            _until(lambda: site.link().call("GET", "/x"))
        assert len(site.got) == 1

    def test_cut_off_changed_moved_or_linked_are_refused(self, site: Site, tmp_path: Path) -> None:
        block_file = _put(site, _GET)
        requests = site.attempt / blocks.REQUESTS
        written_content = (requests / block_file.name).read_bytes()
        (requests / block_file.name).unlink()
        changed = written_content.replace(b"/x", b"/y")
        other = BlockId(ATTEMPT, "cd" * 16, 1, 0, False).name
        (site.attempt / ("cd" * 16)).mkdir(mode=0o700)
        (tmp_path / "outside").write_bytes(written_content)
        with site.served():
            for content in (
                written_content[:20],
                written_content[:-3],
                written_content + b"z",
                changed,
                b"",
                bytes(6 << 20),
            ):
                blocks.write_whole(requests, block_file.name, content)
                _until(lambda: not _requests(site))
            blocks.write_whole(requests, other, written_content)
            _until(lambda: not _requests(site))
            os.symlink(tmp_path / "outside", requests / block_file.name)
            _until(lambda: not _requests(site))
            os.mkfifo(requests / block_file.name)
            _until(lambda: not _requests(site))
        assert site.got == []
        assert (tmp_path / "outside").read_bytes() == written_content

    def test_repeated_pass_once_also_after_a_restart(self, site: Site) -> None:
        block_file = _put(site, _GET)
        requests = site.attempt / blocks.REQUESTS
        content = (requests / block_file.name).read_bytes()
        with site.served():
            _until(lambda: blocks.names(site.attempt / _CONNECTION))
            (requests / block_file.name).write_bytes(content)
            _until(lambda: not _requests(site))
        (requests / block_file.name).write_bytes(content)
        with site.served():
            _until(lambda: not _requests(site))
        assert len(site.got) == 1

    def test_out_of_turn_do_not_pass(self, site: Site) -> None:
        _put(site, _GET, request=2)
        with site.served():
            site.link().call("GET", "/other")
            assert [got.path for got in site.got] == ["/v1/attempts/a1/other"]
            _put(site, _GET)
            _until(lambda: len(site.got) == 3)

    def test_as_responses_are_refused_by_the_node(self, site: Site) -> None:
        def forge() -> None:
            _until(lambda: _requests(site))
            connection = _requests(site)[0].partition("-")[0]
            earlier_block = BlockId(ATTEMPT, connection, 1, 0, True)
            block = Block(LAST, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            blocks.write(site.attempt / connection, earlier_block, blocks.key_of("another"), block)

        forger = threading.Thread(target=forge)
        forger.start()
        with pytest.raises(Unreachable, match="not signed"):
            site.link().call("GET", "/x")
        forger.join()


class TestCrashes:
    def test_requests_that_came_while_no_server_ran_pass_once_when_one_does(
        self, site: Site
    ) -> None:
        results = []
        link = site.link()
        asking = threading.Thread(target=lambda: results.append(link.call("POST", "/x", {})))
        asking.start()
        _until(lambda: _requests(site))
        with site.served():
            asking.join(60)
        assert results == [{"body": 2}]
        assert len(site.got) == 1

    @pytest.mark.parametrize("token", [REPORT, RUN])
    def test_a_request_that_a_killed_server_had_got_is_not_passed_again(
        self, site: Site, token: str
    ) -> None:
        site.held.clear()
        failures = []

        def ask() -> None:
            try:
                site.link(token).call("POST", "/x", {})
            except Unreachable as error:
                failures.append(str(error))

        asking = threading.Thread(target=ask)
        asking.start()
        with site.served():
            _until(lambda: site.got)
        with site.served():
            asking.join(60)
            assert "gave the request up" in failures[0]
            site.held.set()
            site.link().call("POST", "/y", {})
        assert [got.path.rpartition("/")[2] for got in site.got] == ["x", "y"]

    def test_a_file_that_was_never_renamed_is_no_request(self, site: Site) -> None:
        block_file = _put(site, _GET)
        requests = site.attempt / blocks.REQUESTS
        (requests / block_file.name).rename(requests / ".0123.new")
        with site.served():
            site.link().call("GET", "/x")
        assert len(site.got) == 1

    def test_a_node_that_left_in_the_middle_holds_up_nobody(self, site: Site) -> None:
        _put(site, b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\n", number=0)
        with site.served():
            _until(lambda: not _requests(site))
            shutil.rmtree(site.attempt / _CONNECTION)
            assert site.link().call("GET", "/x") == {"body": 0}


class TestEnds:
    def test_of_attempts_leave_nothing(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torchyard.executors.folder_gate._TIDY_EVERY_S", 0.01)
        monkeypatch.setattr("torchyard.executors.folder_gate._QUIET_S", 0.01)
        (site.folder / "left-by-a-dead-server" / blocks.REQUESTS).mkdir(parents=True)
        with site.served():
            link = site.link()
            link.call("GET", "/x")
            _until(lambda: not (site.folder / "left-by-a-dead-server").exists())
            site.running.clear()
            assert link.call("GET", "/x") == {"body": 0}, "a node is told of the end"
            link.close()
            _until(lambda: not site.attempt.exists())
        assert os.listdir(site.folder) == [blocks.WORKERS]
        assert os.listdir(site.marks) == []


class TestPreparing:
    def test_names_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(EngineRefused, match="not a folder on the server") as caught:
            shared_folders.prepare(str(tmp_path / "missing"), SERVER_ID)
        assert "shared_folder: /path" in str(caught.value.hint)

    def test_refuses_a_folder_that_others_enter_or_a_link(self, tmp_path: Path) -> None:
        folder = shared_folders.prepare(str(tmp_path), SERVER_ID)
        folder.chmod(0o755)
        with pytest.raises(EngineRefused, match="other users may enter"):
            shared_folders.prepare(str(tmp_path), SERVER_ID)
        shutil.rmtree(folder)
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(EngineRefused, match="is not a folder"):
            shared_folders.prepare(str(tmp_path), SERVER_ID)

    @pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
    def test_refuses_what_the_file_system_gives_to_another_user(self, tmp_path: Path) -> None:
        os.chown(shared_folders.prepare(str(tmp_path), SERVER_ID), 65534, 65534)
        with pytest.raises(EngineRefused, match="belongs to user 65534") as caught:
            shared_folders.prepare(str(tmp_path), SERVER_ID)
        assert "root_squash" in str(caught.value.hint)
