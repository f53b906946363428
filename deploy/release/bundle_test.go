package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bundle is an archive of images that was read, and whose digests hold.
type bundle struct {
	blobs  map[string][]byte
	images map[string]index
	// list has the images by name and digest.
	list string
}

func readBundle(t *testing.T, name string) bundle {
	t.Helper()
	in, err := os.Open(name)
	require.NoError(t, err)
	defer in.Close()
	files := map[string][]byte{}
	extract(t, in, func(header *tar.Header, content []byte) {
		if header.Typeflag == tar.TypeReg {
			files[header.Name] = content
		}
	})
	assert.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, string(files["oci-layout"]))
	b := bundle{blobs: map[string][]byte{}, images: map[string]index{}}
	for name, content := range files {
		if digest, isBlob := cutBlob(name); isBlob {
			assert.Equal(t, digest, fmt.Sprintf("sha256:%x", sha256.Sum256(content)), name)
			b.blobs[digest] = content
		}
	}
	var all index
	require.NoError(t, json.Unmarshal(files["index.json"], &all))
	assert.Len(t, all.Manifests, len(programs))
	used := map[string]bool{}
	for _, d := range all.Manifests {
		name := d.Annotations["io.containerd.image.name"]
		assert.Equal(t, name, d.Annotations["org.opencontainers.image.ref.name"])
		var platforms index
		b.read(t, d, &platforms)
		used[d.Digest] = true
		assert.Len(t, platforms.Manifests, len(imagePlatforms))
		for _, of := range platforms.Manifests {
			var m manifest
			b.read(t, of, &m)
			used[of.Digest], used[m.Config.Digest] = true, true
			for _, layer := range m.Layers {
				used[layer.Digest] = true
			}
		}
		b.images[name] = platforms
		b.list += name + "@" + d.Digest + "\n"
	}
	assert.Len(t, used, len(b.blobs), "nothing else is in it")
	return b
}

func cutBlob(name string) (digest string, isBlob bool) {
	if filepath.Dir(name) != "blobs/sha256" {
		return "", false
	}
	return "sha256:" + filepath.Base(name), true
}

// read reads the object of a descriptor, which must be there with this size.
func (b bundle) read(t *testing.T, d descriptor, into any) {
	t.Helper()
	content, found := b.blobs[d.Digest]
	require.True(t, found, "%s is missing", d.Digest)
	assert.Len(t, content, int(d.Size))
	require.NoError(t, json.Unmarshal(content, into))
}

// unpack unpacks an image of a platform into a directory, whose files are then those that a container has.
func (b bundle) unpack(t *testing.T, name string, p platform) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, of := range b.images[name].Manifests {
		if *of.Platform != (ociPlatform{p.arch, p.os}) {
			continue
		}
		var m manifest
		b.read(t, of, &m)
		var config imageConfig
		b.read(t, m.Config, &config)
		assert.Equal(t, *of.Platform, config.ociPlatform, name)
		require.Len(t, config.RootFS.DiffIDs, len(m.Layers))
		for i, layer := range m.Layers {
			assert.Len(t, b.blobs[layer.Digest], int(layer.Size))
			plain := unzip(t, b.blobs[layer.Digest])
			assert.Equal(t, config.RootFS.DiffIDs[i], fmt.Sprintf("sha256:%x", sha256.Sum256(plain)), name)
			writeOut(t, root, plain)
		}
		assert.FileExists(t, filepath.Join(root, config.Config.Entrypoint[0]), name)
		return root
	}
	require.Fail(t, "no image", "%s for %s", name, p)
	return ""
}

func unzip(t *testing.T, packed []byte) []byte {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	plain, err := io.ReadAll(reader)
	require.NoError(t, err)
	return plain
}

// extract calls with for each file of a tar.
func extract(t *testing.T, in io.Reader, with func(*tar.Header, []byte)) {
	t.Helper()
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		with(header, content)
	}
}

// writeOut writes the files of a tar into a directory.
func writeOut(t *testing.T, root string, plain []byte) {
	t.Helper()
	extract(t, bytes.NewReader(plain), func(header *tar.Header, content []byte) {
		require.True(t, filepath.IsLocal(header.Name), header.Name)
		to := filepath.Join(root, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.MkdirAll(to, 0o755))
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(header.Linkname, to))
		default:
			require.NoError(t, os.WriteFile(to, content, header.FileInfo().Mode().Perm()))
		}
	})
}
