#!/usr/bin/env python3
"""Makes the images of docker/*.Dockerfile from programs that are built already, as OCI archives in build/images.

    images.py                          all that can be made, but for trainer-cuda; `images.py server trainer` for some
    images.py --load                   and imports them into the cluster (e2e/cluster.py)
    images.py --from-source server     carries out the whole Dockerfile instead, as `docker build` would: minutes

The fast way lays out the same files (docker/collect.sh) and reads the last stage of the same Dockerfile, so that what
is tested is what a `docker build` gives, apart from who ran the compiler; and checks them (image_check.py)."""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import time

import image_check
from driver import choice, oci
from driver.base import ROOT, ClusterError, image_name, run

IMAGES = {"operator": "downpour-operator", "server": "downpour-server", "trainer": "downpour-worker",
          "trainer-cuda": "downpour-worker"}
# Made only when they are asked for: it is 2 GB to download, once.
BY_NAME = {"trainer-cuda"}
# Uncompressed. Whatever makes an image larger has to be a decision.
LIMITS = {"operator": 120, "server": 120, "trainer": 850, "trainer-cuda": 3700}
MEGABYTE = 1000 * 1000


def say(text):
    print(f"images: {text}", file=sys.stderr, flush=True)


def last_stage(dockerfile):
    """The last stage of a Dockerfile: (folders of /image in the order in which they are copied, configuration)."""
    text = re.sub(r"\\\n", " ", dockerfile.read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    first = max(number for number, line in enumerate(lines) if line.startswith("FROM "))
    if lines[first] != "FROM scratch":
        raise ClusterError(f"{dockerfile}: the last stage is '{lines[first]}', expected FROM scratch")
    layers, config = [], {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    for line in lines[first + 1:]:
        word, rest = line.split(maxsplit=1)
        copied = re.fullmatch(r"--from=build /image/(\w+) /", rest)
        if word == "COPY" and copied:
            layers.append(copied[1])
        elif word == "USER":
            config["User"] = rest
        elif word == "ENV" and "=" in rest:
            config["Env"] += shlex.split(rest)
        elif word == "ENTRYPOINT" and rest.startswith("["):
            config["Entrypoint"] = json.loads(rest)
        else:
            raise ClusterError(f"{dockerfile}: cannot carry out '{line}' here; --from-source can")
    return layers, config


def make(image, options, folder, name):
    """The fast way. Returns (archive, uncompressed size)."""
    names, config = last_stage(ROOT / "docker" / f"{image}.Dockerfile")
    files = folder / f"{image}.files"
    more = []
    if image == "trainer-cuda":
        more = [options.libtorch_cuda]
        if not options.libtorch_cuda.exists():
            say(f"laying out LibTorch's CUDA part (about 2 GB to download) in {options.libtorch_cuda}")
            run([ROOT / "docker" / "libtorch-cuda.sh", options.libtorch_cuda, options.libtorch], seconds=3600)
    run([ROOT / "docker" / "collect.sh", image, options.binaries, files, options.libtorch, options.arrow, *more],
        seconds=300)
    trees = [files / name for name in names]
    say(f"{image}: {image_check.check(image, IMAGES[image], trees, folder / f'{image}.root')}")
    layers = []
    for layer in names:
        target = folder / f"{image}.{layer}.layer"
        digest, size = oci.write_layer(target, files / layer)
        layers.append((target, digest, size))
    archive = folder / f"{image}.tar"
    oci.write_archive(archive, name, layers, config)
    for path, _, _ in layers:
        path.unlink()
    shutil.rmtree(files)
    return archive, sum(size for _, _, size in layers)


def base_image(storage):
    """debian:bookworm-slim, made from Debian's own packages where there is no registry of images."""
    name = "docker.io/library/debian:bookworm-slim"
    if run(["buildah", "images", "--quiet", name], check=False, env=storage).strip():
        return
    say("making the base image debian:bookworm-slim")
    root = ROOT / "build" / "images" / "base"
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    run(["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root], seconds=600)
    # Where packages come from, and who is trusted, is this machine's business.
    shutil.rmtree(root / "etc" / "apt" / "sources.list.d", ignore_errors=True)
    for path in ("etc/apt/sources.list", "etc/apt/sources.list.d/debian.sources",
                 "etc/ssl/certs/ca-certificates.crt"):
        source, target = pathlib.Path("/", path), root / path
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    container = run(["buildah", "from", "scratch"], env=storage).strip()
    run(["buildah", "add", "--quiet", container, root, "/"], seconds=300, env=storage)
    run(["buildah", "commit", "--quiet", container, name], seconds=300, env=storage)
    run(["buildah", "rm", container], env=storage)
    shutil.rmtree(root)


def make_from_source(image, folder, name):
    """The whole Dockerfile, without Docker."""
    storage = {"STORAGE_DRIVER": os.environ.get("STORAGE_DRIVER", "overlay"), "BUILDAH_ISOLATION": "chroot"}
    base_image(storage)
    # With the same compiler, what has been compiled here is not compiled again.
    cache = pathlib.Path.home() / ".cache" / "ccache"
    volumes = ["--volume", f"{cache}:/root/.cache/ccache"] if cache.is_dir() else []
    run(["buildah", "build", "--layers", "--isolation", "chroot", "--pull=never", *volumes,
         "--file", ROOT / "docker" / f"{image}.Dockerfile", "--tag", name, ROOT], seconds=7200, env=storage)
    archive = folder / f"{image}.tar"
    archive.unlink(missing_ok=True)
    run(["buildah", "push", "--quiet", "--disable-compression", name, f"oci-archive:{archive}:{name}"], seconds=900,
        env=storage)
    described = json.loads(run(["buildah", "inspect", "--type", "image", name], env=storage))
    manifest = json.loads(described["Manifest"])
    return archive, sum(layer["size"] for layer in manifest["layers"])


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", nargs="*", metavar="IMAGE",
                        help=f"{', '.join(IMAGES)} (default: what is built, but for {', '.join(BY_NAME)})")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", metavar="FOLDER")
    parser.add_argument("--libtorch", type=pathlib.Path, default=ROOT / ".deps" / "libtorch-2.11.0", metavar="FOLDER")
    parser.add_argument("--libtorch-cuda", type=pathlib.Path, default=ROOT / ".deps" / "libtorch-cuda-2.11.0",
                        metavar="FOLDER", help="is downloaded if it is not there")
    parser.add_argument("--arrow", type=pathlib.Path, default=ROOT / ".deps" / "arrow-26.0.1", metavar="FOLDER")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "images", metavar="FOLDER")
    parser.add_argument("--name", default=image_name("{image}"), help="(default: %(default)s)")
    parser.add_argument("--from-source", action="store_true", help="carry out the whole Dockerfile with buildah")
    parser.add_argument("--load", action="store_true", help="import into every node of the cluster")
    choice.add_options(parser)
    options = parser.parse_args(argv)
    for image in options.image:
        if image not in IMAGES:
            parser.error(f"got image '{image}', expected one of {', '.join(IMAGES)}")
    return options


def carry_out(options):
    """Returns the exit status."""
    options.output.mkdir(parents=True, exist_ok=True)
    status = 0
    for image in options.image or [image for image in IMAGES if image not in BY_NAME]:
        program = options.binaries / IMAGES[image]
        if not options.from_source and not program.exists() and not options.image:
            say(f"{image}: left out, there is no {program}")
            continue
        name = options.name.format(image=image)
        started = time.monotonic()
        if options.from_source:
            archive, size = make_from_source(image, options.output, name)
        else:
            archive, size = make(image, options, options.output, name)
        made = time.monotonic() - started
        loaded = ""
        if options.load:
            started = time.monotonic()
            choice.chosen(options).load_image(archive)
            loaded = f", loaded in {time.monotonic() - started:.1f} s"
        print(f"{name:32} {size / MEGABYTE:6.1f} MB of at most {LIMITS[image]} MB, made in {made:.1f} s{loaded}",
              flush=True)
        if size > LIMITS[image] * MEGABYTE:
            say(f"{image}: {size / MEGABYTE:.1f} MB, expected at most {LIMITS[image]} MB")
            status = 1
    return status


def main(argv):
    try:
        return carry_out(parse(argv))
    except ClusterError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
