from __future__ import annotations

import pytest

from streamer.metrics.rebinding import is_rebound

PORT = 9464


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example:9464",
        "ATTACKER.EXAMPLE.:9464",
        "127.0.0.1.attacker.example:9464",
        "localhost.attacker.example:9464",
        "user@attacker.example:9464",
    ],
)
def test_name_that_anybody_may_own_is_refused_on_a_loopback_address(host: str) -> None:
    assert is_rebound(host, "127.0.0.1", PORT)
    assert is_rebound(host, "::1", PORT)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1:9464",
        "[::1]:9464",
        "localhost:9464",
        "localhost.:9464",
        "orders.localhost:9464",
        "node7:9464",
        "10.0.0.7:9464",
        "status.shop.example",
        "status.shop.example:8443",
        "[::1",
        "status.shop.example:99999",
    ],
)
def test_clients_tunnels_and_proxies_are_accepted(host: str) -> None:
    assert not is_rebound(host, "127.0.0.1", PORT)


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.7", "::", "fe80::1%eth0"])
def test_endpoint_that_others_reach_has_any_name(address: str) -> None:
    assert not is_rebound("node7.shop.example:9464", address, PORT)


def test_port_of_http_is_not_in_the_header() -> None:
    assert is_rebound("attacker.example", "127.0.0.1", 80)
