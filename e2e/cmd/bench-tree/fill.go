package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// noise is content that does not compress and differs from file to file.
func noise(seed int) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], uint64(seed))
	return rand.NewChaCha8(key)
}

func write(path string, seed int, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, bufio.NewReaderSize(io.LimitReader(noise(seed), size), 1<<20)); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// smallFiles makes files of 4,000 bytes, a thousand in each directory.
func smallFiles(dir string, n int) error {
	for i := range n {
		in := filepath.Join(dir, fmt.Sprintf("d%04d", i/1000))
		if i%1000 == 0 {
			if err := os.Mkdir(in, 0o755); err != nil {
				return err
			}
		}
		if err := write(filepath.Join(in, fmt.Sprintf("file-%07d", i)), i, 4000); err != nil {
			return err
		}
	}
	return nil
}

func largeFiles(dir string, n int) error {
	for i := range n {
		if err := write(filepath.Join(dir, fmt.Sprintf("file-%d", i)), i, 1<<30); err != nil {
			return err
		}
	}
	return nil
}

// manyNames makes empty files in one directory, each with a second name: the most
// that names and hard links can ask of memory.
func manyNames(dir string, n int) error {
	for i := range n / 2 {
		first := filepath.Join(dir, fmt.Sprintf("a-name-of-usual-length-%08d", i))
		if err := os.WriteFile(first, nil, 0o644); err != nil {
			return err
		}
		if err := os.Link(first, filepath.Join(dir, fmt.Sprintf("the-second-name-of-it-%08d", n-i))); err != nil {
			return err
		}
	}
	return nil
}
