package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// serverName is the name in the certificate of the control plane, which has no such address.
const serverName = "plane.test"

// authority has issued the certificates of a control plane and of its client.
type authority struct {
	pool   *x509.CertPool
	server tls.Certificate
	// The files for the client.
	ca, clientCert, clientKey string
}

func newAuthority(folder string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	root := template("Test CA")
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	bytes, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	root, err = x509.ParseCertificate(bytes)
	if err != nil {
		return nil, err
	}
	a := &authority{pool: x509.NewCertPool(), ca: filepath.Join(folder, "ca.pem")}
	a.pool.AddCert(root)
	if err := write(a.ca, "CERTIFICATE", bytes); err != nil {
		return nil, err
	}
	server := template("server")
	server.DNSNames, server.ExtKeyUsage = []string{serverName}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serverCert, serverKey, err := issue(folder, "server", server, root, key)
	if err != nil {
		return nil, err
	}
	if a.server, err = tls.LoadX509KeyPair(serverCert, serverKey); err != nil {
		return nil, err
	}
	client := template("client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	a.clientCert, a.clientKey, err = issue(folder, "client", client, root, key)
	return a, err
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
}

// issue writes a certificate and its key. Returns their files.
func issue(
	folder, name string, certificate, root *x509.Certificate, rootKey *ecdsa.PrivateKey,
) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	bytes, err := x509.CreateCertificate(rand.Reader, certificate, root, &key.PublicKey, rootKey)
	if err != nil {
		return "", "", err
	}
	if err := write(certFile, "CERTIFICATE", bytes); err != nil {
		return "", "", err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}
	return certFile, keyFile, write(keyFile, "PRIVATE KEY", encoded)
}

func write(file, kind string, bytes []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600)
}
