#!/usr/bin/env bash
# arm64_python.sh FOLDER: lays Debian's arm64 Python and its headers into FOLDER, for qemu-aarch64 -L FOLDER.
# Nothing is installed: apt keeps its lists, packages and state in the folder too.
set -euo pipefail
root=$1
mkdir -p "$root"/apt/{lists,cache/archives}/partial
: >"$root/apt/status"
apt=(apt-get -qq --yes -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=
  -o Dir::State::lists="$root/apt/lists" -o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt/cache"
  -o Debug::NoLocking=true)
"${apt[@]}" update
"${apt[@]}" install --download-only --no-install-recommends python3-minimal libpython3-stdlib libpython3-dev libstdc++6 zlib1g
for package in "$root"/apt/cache/archives/*.deb; do
  dpkg-deb -x "$package" "$root"
done
