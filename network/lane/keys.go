package lane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Keys are the key pairs of a gateway, in a directory that only the program can read: the one that it has, and, while that is changed, the
// next one. A key is changed without a lost connection:
//
//  1. The next key is made, because the other one is old, because its file was deleted, or by a command (Begin). Both are published.
//  2. Once each gateway of the other clusters says that it takes both for this gateway's, connections are made with the next one.
//  3. Those that were made with the old one are given up, one after the other.
//  4. Once there is none left, the next key takes the place of the old one, in one step: from then on it alone is published.
//
// Whenever the program ends, what is published is what is in the directory, and it begins again with the second step. They are safe for
// concurrent use, of two programs, too.
type Keys struct {
	dir string

	mu        sync.Mutex
	own, next *Identity // own is nil until it is needed
	turned    bool      // connections are made with next
}

const (
	// keyFile and nextFile are the names of the private keys in the directory.
	keyFile, nextFile = "gateway.key", "gateway-next.key"
	// unheard is how long a gateway that is away is waited for: whoever has not seen the key in this time is told of it when it comes back.
	unheard = 24 * time.Hour
)

// NewKeys returns the keys in a directory. The first one is made when it is needed.
func NewKeys(dir string) *Keys { return &Keys{dir: dir} }

func (k *Keys) path() string     { return filepath.Join(k.dir, keyFile) }
func (k *Keys) nextPath() string { return filepath.Join(k.dir, nextFile) }

// Published returns the keys that others are to take for this gateway's: one, or while it is changed two.
func (k *Keys) Published() ([]Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return nil, err
	}
	published := []Key{k.own.Key}
	if k.next != nil {
		published = append(published, k.next.Key)
	}
	return published, nil
}

// Begin makes the next key, if there is none. The program that runs on the gateway sees it, or that which will.
func (k *Keys) Begin() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return err
	}
	if k.next != nil {
		return nil
	}
	var err error
	k.next, err = makeIdentity(k.nextPath())
	return err
}

// shown is what new connections are made with. Published has succeeded before.
func (k *Keys) shown() *Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turned {
		return k.next
	}
	return k.own
}

// load reads the keys for the first time. The caller holds mu.
func (k *Keys) load() (err error) {
	if k.own != nil {
		return nil
	}
	own, err := readIdentity(k.path())
	if errors.Is(err, fs.ErrNotExist) {
		// Deleted while nobody looked. Others may know the next one already.
		if err := os.Rename(k.nextPath(), k.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("put the gateway's next key in place: %w", err)
		}
		own, err = makeIdentity(k.path())
	}
	if err != nil {
		return err
	}
	k.own = own
	return k.look()
}

// look sees whether another program has made the next key, or taken it away. The caller holds mu.
func (k *Keys) look() error {
	next, err := readIdentity(k.nextPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.next, k.turned = nil, false
	case err != nil:
		return err
	case k.next == nil || k.next.Key != next.Key:
		k.next, k.turned = next, false
	}
	return nil
}

// rotate takes the next step of a change, of a key that is older than age, 0: however old. Gateways are those of all other clusters; renew
// gives up connections that were not made with a key.
func (k *Keys) rotate(logger klog.Logger, age time.Duration, gateways []Status, renew func(own Key)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return err
	}
	asked, err := k.asked(age)
	if err != nil {
		return err
	}
	var waited time.Duration
	if k.next != nil {
		made, err := written(k.nextPath())
		if err != nil {
			return err
		}
		waited = time.Since(made)
	}
	switch k.decide(asked, waited, gateways) {
	case rest:
	case begin:
		if k.next, err = makeIdentity(k.nextPath()); err != nil {
			return err
		}
		logger.Info("This gateway gets another key, which it uses once all gateways of other clusters know it", "key", k.next.Key)
	case turn:
		k.turned = true
		logger.Info("Connections are made with the next key", "key", k.next.Key)
	case give:
		renew(k.next.Key)
	case finish:
		if err := os.Rename(k.nextPath(), k.path()); err != nil {
			return fmt.Errorf("put the gateway's next key in place: %w", err)
		}
		logger.Info("This gateway has another key", "key", k.next.Key, "before", k.own.Key)
		k.own, k.next, k.turned = k.next, nil, false
	}
	return nil
}

// asked says whether there is to be another key, and puts back the file of the one that is used: it was deleted for another one to be made,
// which others have to know first. The caller holds mu.
func (k *Keys) asked(age time.Duration) (bool, error) {
	if err := k.look(); err != nil {
		return false, err
	}
	content, err := os.ReadFile(k.path())
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(content, k.own.file) {
		return true, keep(k.path(), k.own.file, os.Rename)
	}
	old, err := older(k.path(), age)
	return age > 0 && old, err
}

// older says that a file was written longer ago than that. Of one from the future nobody knows, for the clock was wrong.
func older(path string, age time.Duration) (bool, error) {
	made, err := written(path)
	return err == nil && time.Since(made).Abs() > age, err
}

// written is when a file was.
func written(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("see how old the gateway's key is: %w", err)
	}
	return info.ModTime(), nil
}

// step is what is to be done.
type step int

const (
	rest step = iota
	begin
	turn
	give
	finish
)

// decide returns what is to be done now. Asked: there is to be another key; waited is how long there has been a next one. The caller holds
// mu.
func (k *Keys) decide(asked bool, waited time.Duration, gateways []Status) step {
	switch {
	case k.next == nil && asked:
		return begin
	case k.next == nil:
		return rest
	case !k.turned:
		known := len(gateways) > 0
		for _, g := range gateways {
			known = known && slices.Contains(g.Accepts, k.next.Key)
		}
		if !known && waited < unheard {
			return rest
		}
		return turn
	case waited < 2*unheard && slices.ContainsFunc(gateways, func(g Status) bool { return slices.Contains(g.Own, k.own.Key) }):
		return give // nobody who refuses the next key keeps the old one in use for ever
	}
	return finish
}
