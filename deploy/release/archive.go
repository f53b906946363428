package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// file is one in an archive. A directory has a mode of fs.ModeDir and a link a target; else content, or from names a file
// of this machine that has it.
type file struct {
	name    string
	mode    int64
	link    string
	isDir   bool
	content []byte
	from    string
}

// writeTar writes files as a tar that depends on nothing else: sorted, of root, all of one time. Directories that are missing above
// files are added.
func writeTar(to io.Writer, files []file, modified time.Time) error {
	files = slices.Clone(files)
	known := map[string]bool{}
	for _, f := range files {
		if f.isDir {
			known[f.name] = true
		}
	}
	for _, f := range slices.Clone(files) {
		for above := path.Dir(f.name); above != "." && !known[above]; above = path.Dir(above) {
			known[above] = true
			files = append(files, file{name: above, mode: 0o755, isDir: true})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	archive := tar.NewWriter(to)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, ModTime: modified, Typeflag: tar.TypeReg}
		switch {
		case f.isDir:
			header.Typeflag, header.Name = tar.TypeDir, f.name+"/"
		case f.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		case f.from != "":
			content, err := os.ReadFile(f.from)
			if err != nil {
				return err
			}
			f.content = content
		}
		header.Size = int64(len(f.content))
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := archive.Write(f.content); err != nil {
			return fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	return archive.Close()
}

// compress writes what write writes, compressed.
func compress(to io.Writer, write func(io.Writer) error) error {
	packed := gzip.NewWriter(to)
	if err := write(packed); err != nil {
		return err
	}
	return packed.Close()
}

// writeArchive writes a compressed archive, and returns its SHA-256.
func (r release) writeArchive(name string, files []file) (sum string, err error) {
	var archive bytes.Buffer
	if err := compress(&archive, func(to io.Writer) error { return writeTar(to, files, r.time) }); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(archive.Bytes())), os.WriteFile(name, archive.Bytes(), 0o644) //nolint:gosec // it is published
}
