package tree

import (
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/zeebo/blake3"
)

// The contexts of BLAKE3's key derivation keep hashes of different things apart:
// no content of a file can be taken for a list of entries.
const (
	contentContext = "lodestone.dev/tree/v1 content"
	entriesContext = "lodestone.dev/tree/v1 entries"
	linksContext   = "lodestone.dev/tree/v1 links"
	rootContext    = "lodestone.dev/tree/v1 root"
)

// String is the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the hash in hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 2*HashSize {
		return fmt.Errorf("read a hash: %d digits, not %d", len(text), 2*HashSize)
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return fmt.Errorf("read a hash: %w", err)
	}
	return nil
}

// plain is the hash of data itself: what b3sum prints for it.
func plain(data []byte) Hash { return blake3.Sum256(data) }

func derived(context string) *blake3.Hasher { return blake3.NewDeriveKey(context) }

func sum(h hash.Hash) (s Hash) {
	h.Sum(s[:0])
	return s
}

// contentOf is the hash of a file with these block hashes.
func contentOf(blocks []byte) Hash {
	h := derived(contentContext)
	_, _ = h.Write(blocks)
	return sum(h)
}
