"""Rules of nftables for links: shell lines that the dialling host runs. Pure.

Every fault has a table of its own (`inet`: IPv4 and IPv6), so that deleting it undoes the fault, whatever is in it. A
link's address may be a name: what it means is asked on the dialling host when the fault begins.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from shlex import quote

from brokerdrill.inventory.targets import Link

# What leaves a container on the host passes the host's `forward` hook, by its engine's bridge. What the host only
# routes for other machines is none of its links.
_BRIDGES = """bridges=$(ip -o link show type bridge | sed -E 's/^[0-9]+: ([^:@]+).*/"\\1"/' | paste -sd , -)"""
# The addresses of a name, without those that need an interface; which family one is of shows by its colons.
_OF_NAME = """\
addresses=$(getent ahosts {name} | awk '$1 !~ /%/ {{ print $1 }}' | sort -u)
[ "$addresses" ] || {{ echo {name}': this host knows no address of it' >&2; exit 1; }}
for address in $addresses; do
  case $address in *:*) echo "ip6 $address {port}";; *) echo "ip $address {port}";; esac
done"""


def table(name: str) -> str:
    """The table of a fault or proxy of that name."""
    return f"brokerdrill_{name.replace('-', '_')}"


def family(address: str) -> str | None:
    """Return `ip` or `ip6`; None: it is no address but a name."""
    try:
        return "ip6" if ipaddress.ip_address(address).version == 6 else "ip"
    except ValueError:
        return None


def _end(link: Link) -> str:
    """Shell lines that print what the link leads to: `FAMILY ADDRESS PORT`, a line each."""
    if found := family(link.address):
        return f"echo {found} {link.address} {link.port}"
    return _OF_NAME.format(name=quote(link.address), port=link.port)


def load(name: str, links: Sequence[Link], chains: Iterable[str], rules: Iterable[str], bridged: Iterable[str]) -> str:
    """Return a shell script that makes the table `name` with `chains` (`NAME { … }`) and, for each address that `links`
    lead to, `rules` (`CHAIN …`, with $ip, $address and $port in them); on a host with bridges `bridged`, too, where
    $bridges are their names. It fails, and nothing is made, where a name has no address."""
    lines = [f"add table inet {name}", *(f"add chain inet {name} {chain}" for chain in chains)]
    ends = "\n".join(_end(link) for link in links)
    made = "\n".join(f'  echo "add rule inet {name} {rule}"' for rule in rules)
    more = "\n".join(f'    echo "add rule inet {name} {rule}"' for rule in bridged)
    return f"""ends=$({ends}
) || exit 1
{_BRIDGES}
{{
cat <<'NFT'
{chr(10).join(lines)}
NFT
echo "$ends" | while read -r ip address port; do
{made}
  if [ "$bridges" ]; then
{more}
  fi
done
}} | nft -f -"""


def there(name: str) -> str:
    """Return a script that exits with 0 while the table is there."""
    return f"nft list table inet {name} >/dev/null 2>&1"


def delete(name: str) -> str:
    """Return a script that deletes the table; it may be gone."""
    return f"nft delete table inet {name} 2>/dev/null || ! {there(name)}"


def counted(name: str, chain: str = "") -> str:
    """Return a script that prints how many packets and bytes the counters of the table, or of one `chain`, have met."""
    what = f"chain inet {name} {chain}" if chain else f"table inet {name}"
    return f"""nft list {what} 2>/dev/null | awk '
  {{ for (i = 1; i < NF; i++) if ($i == "packets" || $i == "bytes") met[$i] += $(i + 1) }}
  END {{ for (name in met) printf "%s %.0f\\n", name, met[name] }}'"""
