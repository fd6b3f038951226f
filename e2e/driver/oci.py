"""Writes OCI image archives: a root file system in layers, and how to start it. Needs no daemon and no root."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import tarfile

# Archives of the same content are the same bytes: whoever imports one again finds its layers there.
EPOCH = "1970-01-01T00:00:00Z"


class _Sink:
    """A file that knows its digest and size."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data):
        self.file.write(data)
        self.digest.update(data)
        self.size += len(data)
        return len(data)


def _plain(info):
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    return info


def write_layer(path, tree):
    """The folder `tree` as a layer at `path`: (digest, size). Owners and times are left out."""
    tree = pathlib.Path(tree)
    sink = _Sink(path)
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, copybufsize=1 << 20) as archive:
        for entry in sorted(tree.rglob("*")):
            archive.add(entry, arcname=str(entry.relative_to(tree)), recursive=False, filter=_plain)
    sink.file.close()
    return "sha256:" + sink.digest.hexdigest(), sink.size


def write_archive(path, name, layers, config):
    """An archive of the layers [(file, digest, size)], in order, that imports as `name`."""
    media = "application/vnd.oci.image."
    blobs = {}

    def blob(content):
        data = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return digest, len(data)

    config_digest, config_size = blob({
        "architecture": "amd64", "os": "linux", "created": EPOCH, "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest for _, digest, _ in layers]},
        "history": [{"created": EPOCH} for _ in layers],
    })
    manifest_digest, manifest_size = blob({
        "schemaVersion": 2, "mediaType": media + "manifest.v1+json",
        "config": {"mediaType": media + "config.v1+json", "digest": config_digest, "size": config_size},
        "layers": [{"mediaType": media + "layer.v1.tar", "digest": digest, "size": size}
                   for _, digest, size in layers],
    })
    index = json.dumps({
        "schemaVersion": 2,
        "manifests": [{"mediaType": media + "manifest.v1+json", "digest": manifest_digest, "size": manifest_size,
                       "annotations": {"io.containerd.image.name": name,
                                       "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1]}}],
    }).encode()
    temporary = f"{path}.new"
    with tarfile.open(temporary, "w", copybufsize=1 << 20) as archive:
        for file_name, data in [("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), ("index.json", index)]:
            _add_bytes(archive, file_name, data)
        for digest, data in blobs.items():
            _add_bytes(archive, "blobs/sha256/" + digest.split(":")[1], data)
        for file, digest, size in layers:
            info = tarfile.TarInfo("blobs/sha256/" + digest.split(":")[1])
            info.size = size
            with open(file, "rb") as content:
                archive.addfile(info, content)
    os.replace(temporary, path)


def extend_archive(base, path, name, tree, folder):
    """The image of the archive `base` with the folder `tree` on top, as an archive that imports as `name`. What is
    unpacked for it is left in `folder`."""
    with tarfile.open(base) as archive:
        def blob(digest):
            return archive.extractfile("blobs/sha256/" + digest.split(":")[1])

        index = json.load(archive.extractfile("index.json"))
        manifest = json.load(blob(index["manifests"][0]["digest"]))
        config = json.load(blob(manifest["config"]["digest"]))["config"]
        layers = []
        for layer in manifest["layers"]:
            target = pathlib.Path(folder) / layer["digest"].split(":")[1]
            with blob(layer["digest"]) as content, open(target, "wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            layers.append((target, layer["digest"], layer["size"]))
    target = pathlib.Path(folder) / "top.layer"
    layers.append((target, *write_layer(target, tree)))
    write_archive(path, name, layers, config)


def _add_bytes(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
