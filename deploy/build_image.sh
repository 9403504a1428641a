#!/bin/sh
# Builds the container image: deploy/build_image.sh [cpu|gpu] [NAME:TAG], or `make image`.
#
# Takes docker where an engine runs, else buildah, which needs none. Both may be told more through IMAGE_ARGS, for
# instance another base (`--build-arg BASE=...`) or a file that configures pip (`--volume /etc/pip.conf:/etc/pip.conf:ro`).
set -eu
cd "$(dirname "$0")/.."
variant=${1:-cpu}
name=${2:-dragoman:$variant}
file=deploy/Dockerfile
if [ "$variant" = gpu ]; then
    file=deploy/Dockerfile.gpu
    for manifest in model/pretrained/*/manifest.json; do
        if [ ! -f "build/gpu-models/${manifest#model/pretrained/}" ]; then
            echo "build/gpu-models has no ${manifest#model/pretrained/}: make image VARIANT=gpu exports it" >&2
            exit 1
        fi
    done
fi
revision=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml | head -n 1)
set -- --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --file "$file" --tag "$name"
# shellcheck disable=SC2086  # several words on purpose
if docker info >/dev/null 2>&1; then
    docker build "$@" ${IMAGE_ARGS:-} .
else
    buildah build --format docker --layers "$@" ${IMAGE_ARGS:-} .  # docker's format keeps HEALTHCHECK
fi
