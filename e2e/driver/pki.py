"""Certificates and kubeconfig files, made with openssl, all signed by one authority and in one folder."""

import base64
import json
import pathlib

from .base import run


class Authority:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def path(self, name):
        return self.folder / name

    def create(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._key("ca")
        run(["openssl", "req", "-x509", "-new", "-key", self.path("ca.key"), "-subj", "/CN=downpour-e2e", "-days",
             "30", "-addext", "keyUsage=critical,keyCertSign,digitalSignature", "-out", self.path("ca.crt")])

    def issue(self, name, subject, addresses=(), names=()):
        """NAME.crt and NAME.key. With addresses or names it can serve, without it is for a client."""
        self._key(name)
        alternative = [f"IP:{address}" for address in addresses] + [f"DNS:{dns}" for dns in names]
        extensions = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature",
                      f"extendedKeyUsage={'serverAuth' if alternative else 'clientAuth'}"]
        if alternative:
            extensions.append("subjectAltName=" + ",".join(alternative))
        extension_file = self.path(f"{name}.ext")
        extension_file.write_text("\n".join(extensions) + "\n")
        run(["openssl", "req", "-new", "-key", self.path(f"{name}.key"), "-subj", subject, "-out",
             self.path(f"{name}.csr")])
        run(["openssl", "x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.path("ca.crt"), "-CAkey",
             self.path("ca.key"), "-CAcreateserial", "-days", "30", "-extfile", extension_file, "-out",
             self.path(f"{name}.crt")])
        self.path(f"{name}.csr").unlink()
        extension_file.unlink()

    def signing_key(self, name):
        """NAME.key and its public half, NAME.pub."""
        self._key(name)
        run(["openssl", "pkey", "-in", self.path(f"{name}.key"), "-pubout", "-out", self.path(f"{name}.pub")])

    def kubeconfig(self, name, server, target):
        """A kubeconfig with the certificate NAME in it, so that the file can be copied."""

        def encoded(file):
            return base64.b64encode(self.path(file).read_bytes()).decode()

        # JSON is YAML, and needs no library.
        content = {
            "apiVersion": "v1", "kind": "Config", "current-context": "downpour-e2e",
            "clusters": [{"name": "downpour-e2e",
                          "cluster": {"server": server, "certificate-authority-data": encoded("ca.crt")}}],
            "users": [{"name": name, "user": {"client-certificate-data": encoded(f"{name}.crt"),
                                              "client-key-data": encoded(f"{name}.key")}}],
            "contexts": [{"name": "downpour-e2e", "context": {"cluster": "downpour-e2e", "user": name}}],
        }
        target = pathlib.Path(target)
        target.touch(mode=0o600)
        target.write_text(json.dumps(content, indent=2) + "\n")

    def _key(self, name):
        key = self.path(f"{name}.key")
        run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key])
        key.chmod(0o600)
