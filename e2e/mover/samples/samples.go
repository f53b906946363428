// Package samples makes and changes volumes that copies are measured with.
package samples

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// SmallSize is how many bytes a small file has, and PageSize a page of a large one.
const (
	SmallSize = 4096
	PageSize  = 4096
)

// Small makes small files below a folder.
func Small(ctx context.Context, folder string, files int) error {
	for i := range files {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		path := SmallFile(folder, i)
		if i%500 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return fmt.Errorf("make a folder of small files: %w", err)
			}
		}
		if err := os.WriteFile(path, Noise(uint64(i), SmallSize), 0o644); err != nil {
			return fmt.Errorf("make a small file: %w", err)
		}
	}
	return nil
}

// SmallFile is the path of a small file.
func SmallFile(folder string, i int) string {
	return filepath.Join(folder, "small", fmt.Sprint(i/500), fmt.Sprint(i))
}

// ChangeSmall gives other content to one in a hundred of the small files below a folder.
func ChangeSmall(folder string, files int, round uint64) error {
	for i := 0; i < files; i += 100 {
		if err := os.WriteFile(SmallFile(folder, i), Noise(uint64(i+files)+round<<40, SmallSize), 0o644); err != nil {
			return fmt.Errorf("change a small file: %w", err)
		}
	}
	return nil
}

// Noise is content that does not compress.
func Noise(seed uint64, n int) []byte {
	source := rand.NewPCG(seed, 1)
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, source.Uint64())
	}
	return b[:n]
}

// Large makes a large file.
func Large(path string, size int64, seed uint64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of a large file: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make a large file: %w", err)
	}
	defer file.Close()
	const piece = 1 << 20
	for at := int64(0); at < size; at += piece {
		if _, err := file.Write(Noise(seed<<32+uint64(at), int(min(piece, size-at)))); err != nil {
			return fmt.Errorf("write a large file: %w", err)
		}
	}
	return file.Sync() //nolint:wrapcheck // it names the file
}

// ChangeLarge changes one in a hundred pages of a large file, at random, and returns how many bytes these have.
func ChangeLarge(path string, size int64, round uint64) (changed int64, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("change a large file: %w", err)
	}
	defer file.Close()
	random := rand.New(rand.NewPCG(3, 5+round))
	pages := map[int64]bool{}
	for range size / PageSize / 100 {
		at := random.Int64N(size/PageSize) * PageSize
		pages[at] = true
		if _, err := file.WriteAt(Noise(uint64(at)+7+round, PageSize), at); err != nil {
			return 0, fmt.Errorf("change a large file: %w", err)
		}
	}
	return int64(len(pages)) * PageSize, file.Sync()
}
