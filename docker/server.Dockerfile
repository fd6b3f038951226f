# Coordinator and parameter server. No LibTorch.
#
#     docker build -f docker/server.Dockerfile -t downpour.dev/server:dev .   # from the root
#
# The last stage has no Debian of its own: the program, the shared libraries it needs, name resolution, CA certificates
# and busybox, so that `kubectl exec` finds a shell. Runs as a numeric user without rights.
# Writes only to /tmp and /output, so that its root file system can be read-only.
FROM debian:bookworm-slim AS build
WORKDIR /src
COPY docker/packages-build.txt docker/packages-image.txt docker/
RUN apt-get -q update \
 && sed -e 's/#.*//' docker/packages-*.txt | xargs apt-get -q -y install --no-install-recommends \
 && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY cli cli
COPY operator operator
COPY proto proto
COPY tests tests
COPY trainer trainer
COPY docker/collect.sh docker/
RUN cmake --preset release -DDOWNPOUR_TORCH=OFF -DDOWNPOUR_ARROW=OFF \
 && cmake --build --preset release --target downpour-server \
 && docker/collect.sh server build/release/bin /image

FROM scratch
COPY --from=build /image/programs /
USER 65532:65532
ENV HOME=/tmp
ENTRYPOINT ["/usr/bin/downpour-server"]
