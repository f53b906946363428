package app

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/lodestone-storage/lodestone/network/site"
)

// file is a Site in a file that may change at any time.
type file struct {
	path    string
	next    time.Time
	content []byte
}

// patience is how often the file is read.
const patience = 500 * time.Millisecond

// read returns what the file says, and whether that differs from last time. What cannot be used is said once.
func (f *file) read() (*site.Site, bool, error) {
	if time.Now().Before(f.next) {
		return nil, false, nil
	}
	f.next = time.Now().Add(patience)
	content, err := os.ReadFile(f.path)
	if err != nil {
		f.next = time.Now().Add(20 * patience)
		return nil, false, fmt.Errorf("read --site: %w", err)
	}
	if bytes.Equal(content, f.content) {
		return nil, false, nil
	}
	f.content = content
	s, err := site.Parse(content)
	if err != nil {
		return nil, false, err
	}
	return s, true, nil
}
