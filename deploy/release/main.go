// Command release builds all files of a release into one directory: release.go lists them. It takes Go modules and
// Debian packages, which apt fetches and checks, and neither a container engine nor a registry. The same commit gives
// the same files, as long as Debian has the same packages. Signing and publishing is left to the workflow release.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	var r release
	to := flag.String("to", "bin/release", "directory that the files are written to; it is made anew")
	flag.StringVar(&r.version, "version", "", "version, such as v0.1.0, or v0.0.0-dev.<commit>")
	flag.StringVar(&r.commit, "commit", "", "commit that is built")
	seconds := flag.Int64("time", 0, "time of the commit, in seconds since 1970: that of every file in an archive")
	flag.Parse()
	r.time = time.Unix(*seconds, 0).UTC()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := r.write(ctx, *to)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// write writes all files of the release to a directory, which it makes anew. It runs in the root of the source tree.
func (r release) write(ctx context.Context, to string) error {
	if err := r.check(); err != nil {
		return err
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	notes, err := r.notes(string(changelog))
	if err != nil {
		return err
	}
	manifests, err := r.manifests("deploy")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(to), "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()

	contents, err := r.build(ctx, work)
	if err != nil {
		return err
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	sums := map[platform]string{}
	for _, p := range pluginPlatforms {
		sums[p], err = r.writeArchive(filepath.Join(to, r.plugin(p)), []file{
			{name: "LICENSE", mode: 0o644, content: license},
			{name: p.executable("kubectl-lodestone"), mode: 0o755, from: contents.path(p, "kubectl-lodestone")},
		})
		if err != nil {
			return err
		}
	}
	if _, err := r.writeArchive(filepath.Join(to, r.kustomize()), manifests); err != nil {
		return err
	}
	if err := r.writeChart(ctx, work, filepath.Join(to, r.chart())); err != nil {
		return err
	}
	images, err := r.writeImages(contents, work, filepath.Join(to, r.bundle()))
	if err != nil {
		return err
	}
	bill, err := r.bill(contents, inspectFile)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{r.krew(): r.krewManifest(sums), r.sbom(): bill, r.imageList(): images, r.releaseNotes(): notes} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil { //nolint:gosec // it is published
			return err
		}
	}
	return r.writeChecksums(to)
}

// writeChecksums writes what sha256sum --check reads, of all other files.
func (r release) writeChecksums(to string) error {
	var lines strings.Builder
	for _, f := range r.files() {
		if f.name == r.checksums() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(to, f.name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), f.name)
	}
	return os.WriteFile(filepath.Join(to, r.checksums()), []byte(lines.String()), 0o644) //nolint:gosec // it is published
}
