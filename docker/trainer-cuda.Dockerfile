# The worker with LibTorch's CUDA part beside the CPU part, which the worker loads where there is an NVIDIA driver; with
# our kernels, and NCCL. `make image-cuda` makes and checks it on machines without a GPU; with one it has not been run.
#
#     docker build -f docker/trainer-cuda.Dockerfile -t downpour.dev/trainer-cuda:dev .   # from the root
#
# The last stage has no Debian of its own: the program, the shared libraries it needs, name resolution, CA certificates
# and busybox, so that `kubectl exec` finds a shell. Runs as a numeric user without rights.
# Writes only to /tmp and /output, so that its root file system can be read-only.
FROM debian:bookworm-slim AS build
WORKDIR /src
COPY docker docker
RUN docker/setup.sh \
 && sed -e 's/#.*//' docker/packages-image.txt | xargs apt-get -q -y install --no-install-recommends
RUN docker/libtorch-cuda.sh .deps/libtorch-cuda-2.11.0 .deps/libtorch-2.11.0
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY cli cli
COPY operator operator
COPY proto proto
COPY tests tests
COPY trainer trainer
RUN cmake --preset release \
 && cmake --build --preset release --target downpour-worker downpour_cuda \
 && docker/collect.sh trainer-cuda build/release/bin /image .deps/libtorch-2.11.0 .deps/arrow-26.0.1 .deps/libtorch-cuda-2.11.0

FROM scratch
# What changes least comes first.
COPY --from=build /image/cuda /
COPY --from=build /image/libtorch /
COPY --from=build /image/arrow /
COPY --from=build /image/dataset /
COPY --from=build /image/programs /
# Read by the NVIDIA container runtime: the driver's libraries come from the node. Which GPUs, the device plug-in or the
# claim says: a pod that asks for none is to get none.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
ENV HOME=/tmp
ENTRYPOINT ["/usr/bin/downpour-worker"]
