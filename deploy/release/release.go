package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/deploy/changelog"
)

// repository is where releases are published.
const repository = "https://github.com/lodestone-storage/lodestone"

// registry is where the images of a release are; deploy/components/release-images names it too.
const registry = "ghcr.io/lodestone-storage"

// programs are those that run in clusters, each of an image of its own.
var programs = []string{"provisioner", "extender", "virtualnode", "remote-agent", "mover", "network"}

// platform is what a program is built for, in Go's words.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// executable is the name of a program's file.
func (p platform) executable(name string) string {
	if p.os == "windows" {
		return name + ".exe"
	}
	return name
}

var (
	pluginPlatforms = []platform{
		{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
	}
	imagePlatforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
)

// release is what the names and the contents of a release's files depend on.
type release struct {
	version, commit string
	time            time.Time
}

// artefact is a file of a release.
type artefact struct{ name, what string }

// files are all files of a release. docs/releasing.md has the same list.
func (r release) files() (all []artefact) {
	for _, p := range pluginPlatforms {
		all = append(all, artefact{r.plugin(p), "the kubectl plugin for " + p.String()})
	}
	return append(all,
		artefact{r.krew(), "the manifest of the plugin for krew"},
		artefact{r.kustomize(), "`deploy/`, with the images of this release"},
		artefact{r.chart(), "the Helm chart"},
		artefact{r.bundle(), "all images, for linux/amd64 and linux/arm64: what is pushed to the registry, and a bundle for sites without one"},
		artefact{r.imageList(), "the images by name and digest"},
		artefact{r.sbom(), "what each program and image is made of, in SPDX 2.3"},
		artefact{r.releaseNotes(), "what is new, of CHANGELOG.md"},
		artefact{r.checksums(), "SHA-256 of all other files"},
	)
}

func (r release) plugin(p platform) string {
	return fmt.Sprintf("kubectl-lodestone_%s_%s_%s.tar.gz", r.version, p.os, p.arch)
}
func (r release) krew() string         { return "lodestone.krew.yaml" }
func (r release) kustomize() string    { return "lodestone_" + r.version + "_kustomize.tar.gz" }
func (r release) chart() string        { return "lodestone-" + r.version + ".tgz" } // as helm package names it
func (r release) bundle() string       { return "lodestone_" + r.version + "_images.tar" }
func (r release) imageList() string    { return "images.txt" }
func (r release) sbom() string         { return "lodestone_" + r.version + ".spdx.json" }
func (r release) releaseNotes() string { return "release-notes.md" }
func (r release) checksums() string    { return "checksums.txt" }

// image is the name of a program's image.
func (r release) image(program string) string {
	return registry + "/lodestone-" + program + ":" + r.version
}

// download is the address of a file of the release.
func (r release) download(name string) string {
	return repository + "/releases/download/" + r.version + "/" + name
}

// versions are those that can be the tag of an image and the version of a chart.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func (r release) check() error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("%q is no version of a release: give --version as v0.1.0 or v0.1.0-rc.1", r.version)
	}
	if r.commit == "" || r.time.Unix() <= 0 {
		return errors.New("give --commit and --time, as make release-snapshot does: a release says what it was built from")
	}
	return nil
}

// isFinal says whether this is neither a release candidate nor a snapshot.
func (r release) isFinal() bool { return !strings.Contains(r.version, "-") }

// notes returns the section of this version in a changelog. Links to files of the tree lead to the tree of this version.
func (r release) notes(content string) (string, error) {
	section, err := changelog.Section(content, r.version)
	if err != nil {
		return "", err
	}
	at := r.version
	if !r.isFinal() {
		at = r.commit
	}
	section = regexp.MustCompile(`\]\(([^):#]+)(#[^)]*)?\)`).ReplaceAllString(section, "]("+repository+"/blob/"+at+"/$1$2)")
	return section + "\n\n[How to verify these files](" + repository + "/blob/" + at + "/docs/releasing.md#verify-a-release)\n", nil
}

// releaseImages is the one file of deploy/ that names the images of a release.
const releaseImages = "components/release-images/kustomization.yaml"

var imageTag = regexp.MustCompile(`(?m)(newTag: |/lodestone-mover:)v\S+$`)

// manifests returns what can be applied of deploy/, with the images of this version. What only the suite on kind uses is left out.
func (r release) manifests(deploy string) ([]file, error) {
	var all []file
	err := filepath.WalkDir(deploy, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(deploy, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			left := []string{"changelog", "chart", "release", "overlays/kind", "overlays/kind-remote", "overlays/kind-webhook"}
			if slices.Contains(left, filepath.ToSlash(inside)) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) == ".go" {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if filepath.ToSlash(inside) == releaseImages {
			// Who applies the tree of a tag gets its images, too.
			if r.isFinal() && strings.Count(string(content), r.version+"\n") != len(programs) {
				return fmt.Errorf("%s does not name %s for all %d images: change it before the release is tagged", name, r.version, len(programs))
			}
			content = imageTag.ReplaceAll(content, []byte("${1}"+r.version))
		}
		all = append(all, file{name: path.Join("lodestone-"+r.version, "deploy", filepath.ToSlash(inside)), mode: 0o644, content: content})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	return all, nil
}

// krewManifest is what krew installs the plugin by. sums are the SHA-256 of its archives.
func (r release) krewManifest(sums map[platform]string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: lodestone
spec:
  version: %s
  homepage: %s
  shortDescription: Volumes and pods over several clusters
  description: |
    Installs Lodestone, peers clusters, moves volumes between them, and says
    why a pod or a claim waits.
  platforms:
`, r.version, repository)
	platforms := slices.SortedFunc(maps.Keys(sums), func(a, b platform) int { return strings.Compare(a.String(), b.String()) })
	for _, p := range platforms {
		fmt.Fprintf(&text, `  - selector:
      matchLabels: {os: %s, arch: %s}
    uri: %s
    sha256: %s
    bin: %s
`, p.os, p.arch, r.download(r.plugin(p)), sums[p], p.executable("kubectl-lodestone"))
	}
	return text.String()
}
