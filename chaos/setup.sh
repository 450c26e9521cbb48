#!/bin/sh
# Makes the controller ready: Debian packages that are missing and the locked Python environment.
# With --tests also what only the tests need. Doing it again changes nothing and takes a moment.
# As another user than root it names what to install.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"

# Kept here, for the words of "$@" do not stay the same.
tests=${1:-}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 3; }
have() { command -v "$1" >/dev/null 2>&1; }

# Debian's servers hold the system directories that a user's own PATH may lack.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
export PATH

# --- Python --------------------------------------------------------------------------------------------------------
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
python=
for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
  if [ -n "$candidate" ] && have "$candidate" && "$candidate" -c "$new_enough" 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || die "Python 3.11 or newer is needed (Debian 12, Ubuntu 24.04); set PYTHON to one"

# --- Debian packages -------------------------------------------------------------------------------------------------
# Is there a Java of at least 17? JAVA_HOME, PATH, or anything Debian installed.
java_found() {
  for java in "${JAVA_HOME:-/nowhere}/bin/java" "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
    [ -x "$java" ] || continue
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    if [ "${version:-0}" -ge 17 ]; then
      return 0
    fi
  done
  return 1
}

# Does an engine answer, or is there one to start?
engine_found() {
  [ -n "${DOCKER_HOST:-}" ] || [ -S /var/run/docker.sock ] || have dockerd
}

missing=
want() { missing="$missing $1"; }
"$python" -c 'import ensurepip, venv' 2>/dev/null || [ -x .venv/bin/python ] || want python3-venv
java_found || want openjdk-17-jre-headless
have mvn || want maven
have go || want golang-go
have git || want git
have ssh || want openssh-client
have ip || want iproute2
have tar || want tar
# The reports are tested in a real browser.
[ "$tests" != --tests ] || have chromium || want chromium
# The session router is tested against a real broker, and measured against the proxy that is usual.
[ "$tests" != --tests ] || [ -x /usr/sbin/rabbitmq-server ] || want rabbitmq-server
[ "$tests" != --tests ] || have haproxy || want haproxy
[ "$tests" != --tests ] || have dnsmasq || want dnsmasq-base
# Some of its modules are compiled.
headers='import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
if [ "$tests" = --tests ]; then
  have gcc || { want gcc; want libc6-dev; }
  "$python" -c "$headers" || want "$("$python" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')"
fi
[ -e /etc/ssl/certs/ca-certificates.crt ] || want ca-certificates
if [ "$(id -u)" -eq 0 ]; then
  # Without root there is no engine of our own to start and no root file system to make: the user's engine pulls one.
  engine_found || want docker.io
  have iptables || want iptables
  have mmdebstrap || want mmdebstrap
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || want debian-archive-keyring
fi

if [ -n "$missing" ]; then
  # shellcheck disable=SC2086  # a list of words
  set -- $missing
  if ! have apt-get; then
    die "these are missing, and this is no Debian or Ubuntu to install them on: $*"
  elif [ "$(id -u)" -ne 0 ]; then
    die "these are missing; as root: apt-get install --no-install-recommends $*"
  fi
  mkdir -p .cache
  say "installing $* (log: .cache/apt.log)"
  export DEBIAN_FRONTEND=noninteractive
  # An index that is only partly refreshed may do; what counts is whether the packages install.
  apt-get -q update >.cache/apt.log 2>&1 || true
  apt-get -q install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >>.cache/apt.log 2>&1 \
    || die "apt-get cannot install $*: $(grep '^E:' .cache/apt.log | tail -n 1) (log: .cache/apt.log)"
  java_found || die "there is still no Java of at least 17; install one, or set JAVA_HOME"
fi

# --- the Python environment ----------------------------------------------------------------------------------------
stamp=.venv/.brokerdrill-setup
now=$({ echo "$root"; "$python" -V; cat requirements.lock pyproject.toml; } | sha256sum)
if [ "$now" != "$(cat "$stamp" 2>/dev/null || true)" ] || ! [ -x .venv/bin/brokerdrill ]; then
  say "making the Python environment .venv (a few minutes the first time)"
  mkdir -p .cache
  if ! .venv/bin/python -c "$new_enough" 2>/dev/null || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    rm -rf .venv
    "$python" -m venv .venv || die "no virtual environment can be made; is python3-venv installed?"
  fi
  export PIP_DISABLE_PIP_VERSION_CHECK=1
  .venv/bin/python -m pip install -q --require-hashes -r requirements.lock >.cache/pip.log 2>&1 \
    || die "pip cannot install requirements.lock: $(grep ERROR .cache/pip.log | tail -n 1) (log: .cache/pip.log)"
  .venv/bin/python -m pip install -q --no-deps --no-build-isolation -e . >>.cache/pip.log 2>&1 \
    || die "pip cannot install this checkout (log: .cache/pip.log)"
  printf '%s\n' "$now" >"$stamp"
fi

# The session router stands alone: nothing else here needs it. Its tests are of the compiled one, and that needs a compiler.
if [ "$tests" = --tests ]; then
  stamp=.venv/.router-setup
  # Compiled is what has a .pxd beside it.
  types=$(echo router/amqp_session_router/*/*.pxd)
  # shellcheck disable=SC2086  # a list of words
  now=$({ echo "$now"; cat router/pyproject.toml router/setup.py router/amqp_session_router/*/*.pyx $types; echo $types | sed 's/\.pxd/.py/g' | xargs cat; } | sha256sum)
  if [ "$now" != "$(cat "$stamp" 2>/dev/null || true)" ]; then
    say "building the session router"
    AMQP_SESSION_ROUTER_BUILD=compiled .venv/bin/python -m pip install -q --no-deps --no-build-isolation -e router >.cache/router.log 2>&1 \
      || die "the session router cannot be built: $(grep -m 1 -i error .cache/router.log) (log: .cache/router.log)"
    printf '%s\n' "$now" >"$stamp"
  fi
fi
