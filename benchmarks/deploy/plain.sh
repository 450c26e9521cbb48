#!/usr/bin/env bash
# Deploys artemis_quorum as a careful administrator's script would: all hosts at once, one SSH connection a host, no
# rendering. It copies the same archives and the same configuration, byte for byte, that the playbook left (collected before
# by run.py), unpacks, makes users, starts, and waits until one broker is active and the other in sync.
#   plain.sh ARCHIVES COLLECTED KEY KNOWN_HOSTS HOST=ADDRESS=ROLE...
set -euo pipefail
archives=$1 collected=$2 key=$3 known=$4
shift 4
control=$(mktemp -d)
trap 'for socket in "$control"/*; do [ -S "$socket" ] && ssh -o ControlPath="$socket" -O exit x 2>/dev/null; done; rm -rf "$control"' EXIT

on() { # on ADDRESS COMMAND...: standard input goes to the command
  local address=$1
  shift
  ssh -i "$key" -o UserKnownHostsFile="$known" -o StrictHostKeyChecking=yes -o ControlMaster=auto \
    -o ControlPath="$control/%C" -o ControlPersist=120 -o Compression=no "root@$address" "$@"
}

unpack() { # unpack ADDRESS ARCHIVE DIRECTORY TAR_OPTIONS...
  local address=$1 archive=$2 directory=$3
  shift 3
  on "$address" "mkdir -p $directory && tar x -C $directory --no-same-owner $*" <"$archive"
}

user() { # user ADDRESS NAME: a service's user that may read the host's key
  on "$1" "getent group brokerdrill >/dev/null || groupadd --system brokerdrill
           useradd --system --no-create-home --shell /usr/sbin/nologin $2 && usermod -aG brokerdrill $2" </dev/null
}

zookeeper() { # ADDRESS HOST
  on "$1" 'java -version' </dev/null 2>/dev/null
  user "$1" zookeeper
  unpack "$1" "$archives/zookeeper-3.9.5.tar" /opt/zookeeper/3.9.5
  on "$1" 'tar xz -C / -f - &&
    install -d -o zookeeper -g zookeeper -m 750 /var/lib/zookeeper && mv /myid /var/lib/zookeeper/ &&
    systemctl daemon-reload && systemctl -q enable --now zookeeper' <"$collected/$2.tar.gz"
}

toxiproxy() { # ADDRESS
  on "$1" 'useradd --system --no-create-home --shell /usr/sbin/nologin toxi' </dev/null
  unpack "$1" "$archives/toxiproxy-2.5.0-amd64.tar" /opt/toxiproxy/2.5.0
}

artemis() { # ADDRESS HOST
  on "$1" 'java -version' </dev/null 2>/dev/null
  user "$1" artemis
  toxiproxy "$1"
  unpack "$1" "$archives/apache-artemis-2.56.0-bin.tar.gz" /opt/artemis/2.56.0 -z --strip-components=1
  on "$1" "tar xz -C / -f - &&
    install -d -o artemis -g artemis -m 750 /var/lib/artemis/$2 /var/lib/artemis/$2/tmp &&
    systemctl daemon-reload && systemctl -q enable --now artemis toxiproxy" <"$collected/$2.tar.gz"
}

load() { # ADDRESS HOST
  on "$1" 'java -version; getent group brokerdrill >/dev/null || groupadd --system brokerdrill' </dev/null 2>/dev/null
  toxiproxy "$1"
  unpack "$1" "$archives/apache-artemis-2.56.0-bin.tar.gz" /opt/brokerdrill/artemis-2.56.0 -z --strip-components=1 --wildcards "'*/lib/*.jar'"
  unpack "$1" "$(ls "$archives"/worker-*.tar)" /opt/brokerdrill/worker
  on "$1" 'tar xz -C / -f - && mkdir -p /var/lib/brokerdrill/runs &&
    systemctl daemon-reload && systemctl -q enable --now toxiproxy' <"$collected/$2.tar.gz"
}

settled() { # until one broker is active and another in sync, as their logs say
  local address seen=""
  for _ in $(seq 240); do
    seen=""
    for address in "${brokers[@]}"; do
      seen+=$(on "$address" 'journalctl -u artemis -o cat --no-pager | grep -oE "AMQ221007|AMQ221024" | tail -1' </dev/null || true)" "
    done
    [[ $seen == *AMQ221007* && $seen == *AMQ221024* ]] && return 0
    sleep 0.5
  done
  echo "no active broker with a synchronous copy: $seen" >&2
  return 1
}

brokers=() jobs=()
for entry in "$@"; do
  IFS== read -r host address role <<<"$entry"
  "$role" "$address" "$host" &
  jobs+=($!)
  [ "$role" = artemis ] && brokers+=("$address")
done
for job in "${jobs[@]}"; do wait "$job"; done
settled
