package moverepository

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Keys of a mover's Secret, beside those of package movekeys.
const (
	TicketFile    = "repository.json"
	AuthorityFile = "repository-ca.crt"
)

// Files are what a mover's Secret has of a ticket.
func (t Ticket) Files() (map[string][]byte, error) {
	authority := t.Authority
	t.Authority = nil
	encoded, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode what a mover is told of the move's repository: %w", err)
	}
	files := map[string][]byte{TicketFile: encoded}
	if len(authority) > 0 {
		files[AuthorityFile] = authority
	}
	return files, nil
}

// Read reads a ticket from the folder that a mover's Secret is mounted at; nil if there
// is none: all content goes from mover to mover then.
func Read(folder string) (*Ticket, error) {
	encoded, err := os.ReadFile(filepath.Join(folder, TicketFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	t := &Ticket{}
	if err == nil {
		err = json.Unmarshal(encoded, t)
	}
	if err == nil {
		err = t.check()
	}
	if err != nil {
		return nil, fmt.Errorf("read what this mover is told of the move's repository: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(folder, AuthorityFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the authority of the object store: %w", err)
	}
	t.Authority = authority
	return t, nil
}
