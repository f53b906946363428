package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	recordSuffix = ".json"
	imageSuffix  = ".img"
	newSuffix    = ".new"
)

// load reads the records of a directory and removes what a killed process left.
func load[T any](directory string, into map[string]T) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok {
			continue
		}
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return err
		}
		var record T
		if err := json.Unmarshal(content, &record); err != nil {
			return fmt.Errorf("decode %s: %w", entry.Name(), err)
		}
		into[id] = record
	}
	for _, entry := range entries {
		id, isImage := strings.CutSuffix(entry.Name(), imageSuffix)
		_, known := into[id]
		if strings.HasSuffix(entry.Name(), newSuffix) || (isImage && !known) {
			if err := os.Remove(filepath.Join(directory, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRecord writes a record in one step.
func writeRecord(base string, record any) error {
	content, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	temporary := base + recordSuffix + newSuffix
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	if err := os.Rename(temporary, base+recordSuffix); err != nil {
		return fmt.Errorf("name the record: %w", err)
	}
	return nil
}

// makeImage makes a sparse file of a size; an older one of that path is replaced.
func makeImage(path string, bytes int64) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(bytes); err != nil {
		return fmt.Errorf("size the image: %w", err)
	}
	return nil
}

// copyImage makes a sparse file of a size that begins with what is in another.
func copyImage(to, from string, bytes int64) (err error) {
	if err := makeImage(to, bytes); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the copy: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	for at := int64(0); ; {
		start, end, err := nextData(source, at)
		if err != nil || start < 0 {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(target, start), io.NewSectionReader(source, start, end-start)); err != nil {
			return fmt.Errorf("copy the image: %w", err)
		}
		at = end
	}
}

// nextData returns where the first data at or after a place begins and ends;
// start is negative if there is none.
func nextData(file *os.File, at int64) (start, end int64, err error) {
	start, err = unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return -1, -1, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("look for data: %w", err)
	}
	if end, err = unix.Seek(int(file.Fd()), start, unix.SEEK_HOLE); err != nil {
		return 0, 0, fmt.Errorf("look for the end of data: %w", err)
	}
	return start, end, nil
}
