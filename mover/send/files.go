package send

import (
	"fmt"
	"os"
	"path/filepath"
)

func (s *Sender) sourceManifest() string { return s.Scratch.File("source.manifest") }
func (s *Sender) targetManifest() string { return s.Scratch.File("target.manifest") }

// namesManifest is that of a scan that reads no contents.
func (s *Sender) namesManifest() string { return s.Scratch.File("names.manifest") }

// Forget removes what is left of an earlier life's unfinished files.
func (s *Sender) Forget() error {
	left, err := filepath.Glob(s.Scratch.File("*.partial"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove an unfinished file: %w", err)
		}
	}
	return nil
}
