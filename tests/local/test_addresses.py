"""Clusters never meet: their addresses follow from their slots, and a slot that is in use is refused."""

from ipaddress import ip_address, ip_network
from itertools import combinations

import pytest

from tailhold_local.addresses import SLOTS, Addresses, overlapping
from tailhold_local.errors import LocalError
from tailhold_local.lifecycle import choose_slot


def test_no_two_slots_share_an_address_or_a_link() -> None:
    for one, other in combinations((Addresses(slot) for slot in SLOTS), 2):
        assert not ip_network(one.everything).overlaps(ip_network(other.everything))
        assert one.link != other.link


@pytest.mark.parametrize("slot", SLOTS)
def test_all_of_a_cluster_lies_in_what_the_host_routes_to_it(slot: int) -> None:
    addresses = Addresses(slot)
    everything = ip_network(addresses.everything)
    nodes = [addresses.node(letter) for letter in "ab"]
    ranges = [ip_network(text) for text in (addresses.pods, addresses.services)]
    assert all(each.subnet_of(everything) for each in ranges)
    assert all(ip_network(node.pods).subnet_of(ip_network(addresses.pods)) for node in nodes)
    singles = (addresses.host, addresses.control, *(node.address for node in nodes))
    assert all(ip_address(each) in everything for each in singles)
    assert not any(ip_address(each) in one for each in singles for one in ranges)
    assert not ranges[0].overlaps(ranges[1])


@pytest.mark.parametrize("slot", SLOTS)
def test_services_of_the_cluster_itself_have_addresses_of_the_service_range(slot: int) -> None:
    addresses = Addresses(slot)
    services = ip_network(addresses.services)
    assert ip_address(addresses.api_service) == services[1]
    assert ip_address(addresses.dns_service) in services


def test_names_of_links_fit_the_kernel() -> None:
    assert all(len(Addresses(slot).link) <= 15 for slot in SLOTS)


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ({}, None),
        ({"0.0.0.0/0": "eth0", "192.0.2.0/24": "eth0"}, None),
        ({"10.203.0.0/16": "tailhold3"}, None),
        ({"10.203.7.0/24": "br0"}, ("10.203.7.0/24", "br0")),
        ({"10.0.0.0/8": "vpn"}, ("10.0.0.0/8", "vpn")),
        ({"10.203.1.2": "vpn"}, ("10.203.1.2", "vpn")),
    ],
)
def test_a_foreign_route_into_the_range_is_found(routes: dict[str, str], expected: tuple[str, str] | None) -> None:
    assert overlapping(Addresses(3), routes) == expected


def test_the_first_free_slot_is_taken() -> None:
    clashes = {1: "10.201.0.0/16 is routed to vpn"}
    assert choose_slot(None, {0: "demo"}, clashes.get) == 2


def test_a_wanted_slot_that_is_free_is_taken() -> None:
    assert choose_slot(7, {0: "demo"}, lambda _: None) == 7


@pytest.mark.parametrize(
    ("wanted", "taken", "clash", "said"),
    [
        (0, {0: "demo"}, None, "cluster 'demo' has it"),
        (4, {}, "routed to vpn", "routed to vpn"),
        (None, dict.fromkeys(SLOTS, "other"), None, "all slots are in use"),
    ],
)
def test_a_slot_that_cannot_be_had_is_refused_with_the_reason(
    wanted: int | None, taken: dict[int, str], clash: str | None, said: str
) -> None:
    with pytest.raises(LocalError, match=said):
        choose_slot(wanted, taken, lambda _: clash)
