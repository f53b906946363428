package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Media types of the OCI image specification.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int64             `json:"size"`
		Platform    *ociPlatform      `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	ociPlatform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
	manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	imageConfig struct {
		ociPlatform
		Created time.Time `json:"created"`
		Config  settings  `json:"config"`
		RootFS  struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	// settings are how a program is started.
	settings struct {
		User       string            `json:"User"`
		Env        []string          `json:"Env"`
		Entrypoint []string          `json:"Entrypoint"`
		Labels     map[string]string `json:"Labels"`
	}
)

// settings of a program's image are those that the Dockerfile has: the mover writes files of all users.
func (r release) settings(program string) settings {
	user := "65532:65532"
	if program == "mover" {
		user = "0:0"
	}
	return settings{User: user, Env: []string{"PATH=/usr/bin"}, Entrypoint: []string{"/lodestone-" + program}, Labels: map[string]string{
		"org.opencontainers.image.source":   repository,
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
	}}
}

// store is the blobs of a bundle, as an OCI layout in a directory.
type store struct{ directory string }

func (s store) blob(mediaType string, content []byte) (descriptor, error) {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	name := filepath.Join(s.directory, "blobs", "sha256", sum)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return descriptor{}, err
	}
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: int64(len(content))}, os.WriteFile(name, content, 0o600)
}

func (s store) object(mediaType string, object any) (descriptor, error) {
	content, err := json.Marshal(object)
	if err != nil {
		return descriptor{}, err
	}
	return s.blob(mediaType, content)
}

// image adds an image of layers for a platform.
func (s store) image(r release, p platform, how settings, layers ...[]file) (descriptor, error) {
	config := imageConfig{ociPlatform: ociPlatform{p.arch, p.os}, Created: r.time, Config: how}
	config.RootFS.Type = "layers"
	m := manifest{SchemaVersion: 2, MediaType: manifestType}
	for _, files := range layers {
		var plain, packed bytes.Buffer
		if err := writeTar(&plain, files, r.time); err != nil {
			return descriptor{}, err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes())))
		err := compress(&packed, func(to io.Writer) error { _, err := plain.WriteTo(to); return err })
		if err != nil {
			return descriptor{}, err
		}
		layer, err := s.blob(layerType, packed.Bytes())
		if err != nil {
			return descriptor{}, err
		}
		m.Layers = append(m.Layers, layer)
	}
	var err error
	if m.Config, err = s.object(configType, config); err != nil {
		return descriptor{}, err
	}
	d, err := s.object(manifestType, m)
	d.Platform = &ociPlatform{p.arch, p.os}
	return d, err
}

// writeImages writes the bundle, which has an index of platforms for each image, and returns the images by name and digest.
func (r release) writeImages(c contents, work, to string) (list string, err error) {
	s := store{directory: filepath.Join(work, "images")}
	bundle, lines := index{SchemaVersion: 2, MediaType: indexType}, strings.Builder{}
	for _, program := range programs {
		platforms := index{SchemaVersion: 2, MediaType: indexType}
		for _, p := range imagePlatforms {
			own := []file{{name: "lodestone-" + program, mode: 0o755, from: c.path(p, "lodestone-"+program)}}
			d, err := s.image(r, p, r.settings(program), c.base(program, p), own)
			if err != nil {
				return "", fmt.Errorf("make the image of %s for %s: %w", program, p, err)
			}
			platforms.Manifests = append(platforms.Manifests, d)
		}
		d, err := s.object(indexType, platforms)
		if err != nil {
			return "", err
		}
		// Both are read: the first by containerd, the second by skopeo.
		d.Annotations = map[string]string{
			"io.containerd.image.name":          r.image(program),
			"org.opencontainers.image.ref.name": r.image(program),
		}
		bundle.Manifests = append(bundle.Manifests, d)
		fmt.Fprintf(&lines, "%s@%s\n", r.image(program), d.Digest)
	}
	content, err := json.Marshal(bundle)
	if err != nil {
		return "", err
	}
	files := []file{
		{name: "index.json", mode: 0o644, content: content},
		{name: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	}
	blobs, err := filepath.Glob(filepath.Join(s.directory, "blobs", "sha256", "*"))
	if err != nil {
		return "", err
	}
	for _, blob := range blobs {
		files = append(files, file{name: "blobs/sha256/" + filepath.Base(blob), mode: 0o644, from: blob})
	}
	out, err := os.Create(to)
	if err != nil {
		return "", err
	}
	err = writeTar(out, files, r.time)
	if closing := out.Close(); err == nil {
		err = closing
	}
	return lines.String(), err
}

// base returns what the image of a program has beside it: authorities, users and a folder for temporary files; that of the mover also
// rsync and restic.
func (c contents) base(program string, p platform) []file {
	base := []file{
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: c.debian[p].authorities},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{name: "tmp", mode: 0o1777, isDir: true},
	}
	if program == "mover" {
		base = append(append(base, c.debian[p].files...), file{name: "usr/bin/restic", mode: 0o755, from: c.path(p, "restic")})
	}
	return base
}
