package lane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Key names the public key of a gateway: the SHA-256 of its SubjectPublicKeyInfo. Gateways know each other by it, and by nothing else.
type Key [sha256.Size]byte

// MarshalText writes the key in base64, which is how people and objects have it.
func (k Key) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, k[:]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (k *Key) UnmarshalText(text []byte) error {
	decoded, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(decoded) != len(k) {
		return fmt.Errorf("%q is not the key of a gateway: give the 44 characters that `lodestone-network key` prints there", text)
	}
	copy(k[:], decoded)
	return nil
}

func (k Key) String() string {
	return base64.StdEncoding.EncodeToString(k[:])
}

// Identity is a gateway's own key pair. It does not leave the machine that it was made on.
type Identity struct {
	Key         Key
	certificate tls.Certificate
	// file is its file's content.
	file []byte
}

// readIdentity reads a key pair from a file.
func readIdentity(path string) (*Identity, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the gateway's key: %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key: delete it, and a new one is made", path)
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s holds no key, delete it, and a new one is made: %w", path, err)
	}
	signer, ok := private.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of type %T, which is not ours: delete it, and a new one is made", path, private)
	}
	return newIdentity(signer, content)
}

// makeIdentity makes a key pair and keeps it in a file. Of two programs that do so at once both get the same.
func makeIdentity(path string) (*Identity, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the gateway's key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("encode the gateway's key: %w", err)
	}
	content := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	err = keep(path, content, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return readIdentity(path)
	}
	if err != nil {
		return nil, err
	}
	return newIdentity(private, content)
}

// keep writes a file that only its owner can read, in one step: place makes it of a whole one.
func keep(path string, content []byte, place func(from, to string) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*") // only its owner can read it
	if err != nil {
		return fmt.Errorf("keep the gateway's key: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = place(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("keep the gateway's key: %w", err)
	}
	return nil
}

// newIdentity makes the certificate that TLS needs around a key. Nobody reads more of it than the key.
func newIdentity(private *ecdsa.PrivateKey, file []byte) (*Identity, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lodestone-network"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, fmt.Errorf("make the gateway's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the gateway's certificate: %w", err)
	}
	return &Identity{Key: keyOf(leaf), file: file,
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}}, nil
}

func keyOf(certificate *x509.Certificate) Key {
	return sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
}

// protocols are the versions of what gateways say to each other, the newest first: that before knows no ticks but of one byte, tickHears
// or 0.
var protocols = []string{"lodestone-lane/2", "lodestone-lane/1"}

// tlsConfig is for both ends: TLS 1.3, a certificate from each, and of it only the key counts. No clock and no
// authority has a say, and nothing is resumed.
func (i *Identity) tlsConfig(known func(Key) error) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{i.certificate},
		NextProtos:   protocols,
		ClientAuth:   tls.RequireAnyClientCert,
		// The chain is not verified, the key is: below.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		// Records of full size from the start: small ones are for browsers that wait for the first line.
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if !slices.Contains(protocols, state.NegotiatedProtocol) {
				return errors.New("the other side does not speak " + strings.Join(protocols, " or "))
			}
			if len(state.PeerCertificates) == 0 {
				return errors.New("the other side shows no key")
			}
			return known(keyOf(state.PeerCertificates[0]))
		},
	}
}
