"""Creates an authority and certificates with openssl."""

from __future__ import annotations

from pathlib import Path

from checking import output

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificates:
    """A folder with `ca.pem`, and `NAME.pem` and `NAME.key` for each certificate."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.ca = folder / "ca.pem"
        subject = ("-subj", "/CN=authority of a test", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        output("openssl", "req", "-x509", *KEY, *subject, "-days", 2, "-keyout", folder / "ca.key", "-out", self.ca)

    def files(self, name: str) -> tuple[Path, Path]:
        """Returns the paths of a certificate and its key."""
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def make(self, name: str, *names: str, subject: str = "") -> tuple[Path, Path]:
        """Creates a certificate with these alternative names. Returns the paths of the certificate and its key."""
        certificate, key = self.files(name)
        request, subject = self.folder / f"{name}.csr", subject or f"/O=tests/CN={name}"
        output("openssl", "req", "-new", *KEY, "-subj", subject, "-keyout", key, "-out", request)
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(names)}\nbasicConstraints=CA:FALSE\n")
        output(
            "openssl", "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key",
            "-CAcreateserial", "-days", 2, "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        return certificate, key

    def make_ocsp(self, name: str) -> Path:
        """Creates an OCSP response for stapling, with the status `good`."""
        certificate, response = self.folder / f"{name}.pem", self.folder / f"{name}.ocsp"
        serial = output("openssl", "x509", "-in", certificate, "-noout", "-serial").strip().partition("=")[2]
        index = self.folder / "index.txt"
        index.write_text(f"V\t491231235959Z\t\t{serial}\tunknown\t/O=tests/CN={name}\n")
        authority = ("-CA", self.ca, "-rsigner", self.ca, "-rkey", self.folder / "ca.key", "-issuer", self.ca)
        output("openssl", "ocsp", "-index", index, *authority, "-cert", certificate, "-ndays", 1, "-respout", response)
        return response
