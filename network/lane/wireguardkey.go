package lane

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// WireGuardKey is the public key of a gateway for WireGuard, of Curve25519.
type WireGuardKey wgtypes.Key

// MarshalText writes the key in base64, which is how people and objects have it.
func (k WireGuardKey) MarshalText() ([]byte, error) {
	return []byte(k.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (k *WireGuardKey) UnmarshalText(text []byte) error {
	decoded, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(decoded) != len(k) {
		return fmt.Errorf("%q is no key of WireGuard: give the 44 characters that `lodestone-network key --wireguard` prints on that gateway",
			text)
	}
	copy(k[:], decoded)
	return nil
}

func (k WireGuardKey) String() string { return wgtypes.Key(k).String() }

// WireGuardPrivateKey is a gateway's own. It does not leave the machine that it was made on.
type WireGuardPrivateKey wgtypes.Key

// Public is the key that others know.
func (k WireGuardPrivateKey) Public() WireGuardKey { return WireGuardKey(wgtypes.Key(k).PublicKey()) }

// wireGuardKeyFile is the name of the private key in a gateway's directory.
const wireGuardKeyFile = "wireguard.key"

// LoadWireGuardKey reads the key that is kept in a directory, and makes it if there is none. Of two programs that do so at once both get
// the same.
func LoadWireGuardKey(dir string) (WireGuardPrivateKey, error) {
	path := filepath.Join(dir, wireGuardKeyFile)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeWireGuardKey(path, os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
			return WireGuardPrivateKey{}, fmt.Errorf("keep the gateway's WireGuard key: %w", err)
		}
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return WireGuardPrivateKey{}, fmt.Errorf("read the gateway's WireGuard key: %w", err)
	}
	key, err := wgtypes.ParseKey(strings.TrimSpace(string(content)))
	if err != nil {
		return WireGuardPrivateKey{}, fmt.Errorf("%s holds no key: delete it, and a new one is made", path)
	}
	return WireGuardPrivateKey(key), nil
}

// ChangeWireGuardKey makes another key in a directory in place of the one there, if that is older than age; 0: however old. Each lane goes
// over to it by itself (wireGuard.next).
func ChangeWireGuardKey(dir string, age time.Duration) error {
	path := filepath.Join(dir, wireGuardKeyFile)
	old, err := older(path, age)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made when it is needed
	}
	if err == nil && old {
		err = makeWireGuardKey(path, os.Rename)
	}
	if err != nil {
		return fmt.Errorf("change the gateway's WireGuard key: %w", err)
	}
	return nil
}

// makeWireGuardKey makes a key, and has place put its file at path in one step.
func makeWireGuardKey(path string, place func(from, to string) error) error {
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), wireGuardKeyFile+"-*") // only its owner can read it
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(key.String() + "\n")
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return place(file.Name(), path)
}
