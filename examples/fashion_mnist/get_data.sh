#!/usr/bin/env bash
# Put the four Fashion-MNIST files (31 MB) into examples/fashion_mnist/data.
#
# They come from Debian's package dataset-fashion-mnist: copied when it is installed, else
# downloaded and unpacked without installing it, which needs no root.
set -euo pipefail
cd "$(dirname "$0")"

installed=/usr/share/datasets/fashion-mnist
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

if [ ! -d "$installed" ]; then
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "error: this machine has no Debian packages" >&2
        echo "hint: put the four *-ubyte.gz files of Fashion-MNIST into $PWD/data by hand" >&2
        exit 2
    fi
    if ! (cd "$temporary" && apt-get download dataset-fashion-mnist >/dev/null 2>"$temporary/log"); then
        cat "$temporary/log" >&2
        echo "error: package \`dataset-fashion-mnist\` could not be downloaded" >&2
        echo "hint: \`apt-get update\`, then run this again" >&2
        exit 1
    fi
    dpkg-deb --extract "$temporary"/*.deb "$temporary/root"
    installed=$temporary/root$installed
fi

mkdir -p data
cp "$installed"/*-ubyte.gz data/
echo "Fashion-MNIST is in $PWD/data"
