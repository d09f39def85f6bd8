"""Where a redirect may lead: to public addresses only, unless private ones are allowed."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from urllib.parse import urljoin

from penstock.connect.webhook.exchange import Unreachable
from penstock.connect.webhook.place import Place


class Refused(Exception):
    """A redirect that is not followed."""


async def follow(place: Place, location: str, *, allow_private: bool) -> Place:
    """Return where a redirect leads; `Refused` if that is private, or not HTTP; `Unreachable` if it has no address.

    The address is looked up once and then used, so that the name cannot mean another one a moment later.
    """
    try:
        to = Place.of(urljoin(place.url, location))
    except ValueError as error:
        raise Refused(f"a redirect leads nowhere: {error}") from None
    if place.secure and not to.secure:
        raise Refused("a redirect leads away from https")
    if allow_private or to.origin == place.origin:  # the same origin, at the same address
        return to._replace(address=place.address if to.origin == place.origin else None)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise Refused(f"a redirect leads to {to.host}, which is no name") from None
    except OSError as error:  # the name, or the server of names, may be back soon
        raise Unreachable(f"a redirect leads to {to.host}, which is unknown: {error.strerror}") from None
    addresses = [str(one[4][0]) for one in found]
    if not addresses or not all(is_public(one) for one in addresses):
        raise Refused(f"a redirect leads to {to.host}, a private address")
    return to._replace(address=addresses[0])


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet, and so does an address that it stands for.

    >>> is_public("10.0.0.1"), is_public("::ffff:127.0.0.1"), is_public("64:ff9b::a00:1"), is_public("8.8.8.8")
    (False, False, False, True)
    """
    found: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address.partition("%")[0])
    if any(found in one for one in _INTERNAL):
        return False
    if isinstance(found, ipaddress.IPv6Address) and (inner := _inner(found)) is not None:
        found = inner
    return found.is_global and not found.is_multicast


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a gateway would take out of an IPv6 address."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (None if teredo is None else teredo[1])


# What `is_global` calls global, and only a network itself gives a meaning: the first form of IPv4 in IPv6, its
# translated form, the translation within a site, and the addresses of sites.
_INTERNAL = [ipaddress.IPv6Network(one) for one in ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "fec0::/10")]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
